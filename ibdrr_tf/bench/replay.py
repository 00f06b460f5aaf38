"""Training steps fed from bit-strings, beside steps fed from raw images."""

import pathlib
import tempfile
import time

import numpy as np
import tensorflow as tf

from ibdrr_tf.choices import CACHES
from ibdrr_tf.classifiers.classifier import build_classifier
from ibdrr_tf.classifiers.information_back import ReplayClassifier
from ibdrr_tf.classifiers.optimizer import L2SGD
from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codec import encode_examples
from ibdrr_tf.replay.feeds import CodeFeed
from ibdrr_tf.replay.manifest import MemoryFolder

__all__ = ["measure"]

_BATCH, _CLASSES = 128, 10
_AUGMENT = Augmentation(padding=4)


def measure(
  codec: str, *, steps: int, width: int
) -> dict[str, dict[str, float]]:
  """Seconds a step, all of an epoch's work included.

  An epoch that is fed from bit-strings begins with reading them from the disk
  and decoding them to codes, although a learner does this once for all epochs.
  The kinds take turns, so that whatever else the machine does meets all of
  them.

  Args:
    codec: a name or folder.
    steps: in an epoch.
    width: of ResNet-18.

  Returns:
    A row for raw images and for each cache: `seconds`, the median over turns,
    and `ratio` to raw images.
  """
  folder = pretrained.folder_of(codec)
  vqvae = vqvae_file.from_bytes((folder / pretrained.VQVAE_FILE).read_bytes())
  examples = _noise(steps * _BATCH)
  with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    memory = MemoryFolder(root / "memory")
    store = CodeStore(memory, root / "codec")
    model = bit_swap_file.from_bytes(
      (folder / pretrained.BITSWAP_FILE).read_bytes()
    )
    part = store.replace(0, encode_examples(vqvae, examples), model)
    memory.write(0, {store.PART: part})
    store.settle()

    def replayed(cache: str) -> CodeFeed:
      return CodeFeed(store.read(), vqvae, (32, 32), cache=cache)

    kinds = {"raw images": lambda: examples}
    for cache in CACHES:
      kinds[f"bit-strings, {cache} cached"] = lambda c=cache: replayed(c)
    seconds = _take_turns(kinds, width, steps)
  raw = seconds["raw images"]
  return {
    name: {"seconds": value, "ratio": value / raw}
    for name, value in seconds.items()
  }


def _take_turns(kinds, width: int, steps: int) -> dict[str, float]:
  """The median seconds of a step of each kind, over three epochs of each."""
  classifiers = {name: _classifier(width, kinds[name]()) for name in kinds}
  taken = {name: [] for name in kinds}
  for epoch in range(4):
    for name, make in kinds.items():
      started = time.perf_counter()
      batches = make().training_batches(
        batch_size=_BATCH,
        epochs=range(epoch, epoch + 1),
        seed=stream.fold_in(epoch),
        augment=_AUGMENT,
      )
      classifiers[name].fit(batches, steps_per_epoch=steps, verbose=0)
      taken[name].append((time.perf_counter() - started) / steps)
  # The first epoch also builds graphs.
  return {name: float(np.median(times[1:])) for name, times in taken.items()}


def _classifier(width: int, examples) -> tf.keras.Model:
  is_replayed = isinstance(examples, CodeFeed)
  classifier = build_classifier(
    backbone="resnet18",
    width=width,
    image_shape=(32, 32, 3),
    classes=_CLASSES,
    **({"kind": ReplayClassifier} if is_replayed else {}),
  )
  options = {"prepare": examples.preparation(_AUGMENT)} if is_replayed else {}
  classifier.compile(
    L2SGD(0.1, momentum=0.9, l2=5e-4, jit_compile=False),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    **options,
  )
  return classifier


def _noise(count: int) -> Examples:
  """Images whose content does not matter, in RAM."""
  generator = np.random.default_rng(0)
  images = generator.integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)
  labels = np.sort(generator.integers(0, _CLASSES, count)).astype(np.int32)
  return in_memory(images, labels)
