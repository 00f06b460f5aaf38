"""Continual learning that remembers every image as a bit-string (IB-DRR).

    learner = ibdrr_tf.Learner("state")
    learner.learn("monday/")                        # one folder a class
    learner.learn("friday/")                        # monday/ may be gone
    learner.predict(images).names

    codec = ibdrr_tf.load_codec("cifar100")
    memory = ibdrr_tf.ReplayMemory("memory", codec)
    memory.add(images, labels)
    model.fit(memory.dataset(batch_size=128, augment=True))

The package is laid out along the flow of the data:

    images -> codes -> bit-strings -> memory -> tf.data -> classifier -> report

`data` gives images, `codec` turns them into bit-strings and back, `replay`
keeps and replays them, `classifiers` and `methods` learn from them, and
`evaluation` says how well. `learner` does one step after another; `experiment`
is a benchmark around it, `main` and `cli` are the commands.
"""

import importlib
import os
import sys
from typing import Any

# TensorFlow 2.14 takes oneDNN's convolutions by itself only on CPUs with
# AVX512-VNNI. On an AMD EPYC without it, its own ones trained a ResNet-18 two
# to four times slower. Works only before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# TensorFlow 2.17 brings Keras 3, and this package is written for Keras 2.
# TensorFlow 2.14 has no other, and does not know the variable.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
if sys.modules.get("tensorflow"):
  from ibdrr_tf import keras_version

  keras_version.check()

# Public names and where they live. They are imported when they are used:
# TensorFlow takes seconds.
_PUBLIC = {
  "Learner": "learner",
  "Ledger": "evaluation.ledger",
  "Method": "methods",
  "ReplayMemory": "replay.replay_memory",
  "UserError": "errors",
  "load_codec": "codec.load",
  "register_backbone": "classifiers.resnet",
  "register_method": "methods",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
  if name == "__version__":  # Written once, in setup.cfg.
    from importlib import metadata

    return metadata.version(__name__)
  if name not in _PUBLIC:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  # TensorFlow reports missing GPU libraries in lines that look like errors.
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  module = importlib.import_module(f"{__name__}.{_PUBLIC[name]}")
  return getattr(module, name)


def __dir__() -> list[str]:
  return sorted([*globals(), *_PUBLIC])
