"""How fast each stage trains, and what a second replica brings.

A stage is trained by the very functions that a run calls, for a few epochs. Its
speed is taken from the times at which TensorBoard's records of the epochs were
written, the first epoch, in which graphs are built, left out. So an epoch has
all that belongs to it: steps, held-out codes, pictures and checkpoints.
"""

import functools
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training
from ibdrr_tf.codec import pretrained
from ibdrr_tf.data.examples import Examples, select
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.source import Source
from ibdrr_tf.data.task import Task
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import Step, learn_step, method_named
from ibdrr_tf.replay.codec import ReplayCodec
from ibdrr_tf.replay.memory import Setting

__all__ = [
  "METHODS",
  "compare",
  "images_per_second",
  "measure",
  "measure_apart",
]

# Classifiers: on raw images, on reconstructions, and with Information Back.
METHODS = ("upper_bound", "drr", "ib_drr")


def measure(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  strategy: tf.distribute.Strategy,
  *,
  epochs: int,
  methods: Sequence[str] = METHODS,
) -> dict[str, dict[str, float]]:
  """Images a second of each stage, in a learner's first step.

  Args:
    config: recipes of all stages; their epochs are not looked at. `codec` names
      the one whose codes Bit-Swap and the classifiers learn from; "" is the
      default.
    source: the data set.
    scenario: its base classes are trained on.
    strategy: models are made within its scope.
    epochs: of every stage; at least two.
    methods: whose classifiers to train.

  Returns:
    A row for each stage: `replicas`, `batch`, of all replicas together,
    `images` in an epoch, and `images_per_second`.
  """
  config = config.copy_and_resolve_references()
  config.codec = config.codec or pretrained.DEFAULT
  # Recipes that stop early would leave too few epochs.
  config.bitswap.patience = epochs
  for stage in (config.vqvae, config.bitswap, config.classifier):
    stage.epochs = epochs
  base = select(source.train, scenario, scenario.new_labels(0))
  recipes = {"VQ-VAE": config.vqvae, "Bit-Swap": config.bitswap}
  with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    codec = codec_training.prepare_codec(config, base, root / "codec", strategy)
    stages: dict[str, Callable[[pathlib.Path], object]] = {
      "VQ-VAE": lambda folder: codec_training.train_vqvae(
        config, base, folder, strategy
      ),
      "Bit-Swap": lambda folder: codec_training.BitSwapTrainer(
        config, codec.vqvae, folder, strategy
      ).train(codec.encode(base)),
    }
    for name in methods:
      stages[f"classifier, {name}"] = functools.partial(
        _train_classifier, config, name, base, codec, strategy
      )
    rows = {}
    for number, (name, train) in enumerate(stages.items()):
      folder = root / f"stage-{number}"
      train(folder)
      rows[name] = {
        "replicas": strategy.num_replicas_in_sync,
        "batch": recipes.get(name, config.classifier).batch_size,
        "images": len(base),
        "images_per_second": images_per_second(
          folder / "tensorboard", len(base)
        ),
      }
  return rows


def _train_classifier(
  config: ml_collections.ConfigDict,
  name: str,
  base: Examples,
  codec: ReplayCodec,
  strategy: tf.distribute.Strategy,
  folder: pathlib.Path,
) -> None:
  """Trains the classifier of a method's first step, as a learner does."""
  config = config.copy_and_resolve_references()
  config.method = name
  method = method_named(name)
  setting = Setting(
    config, folder / "memory", base.image_shape, codec, Team(strategy)
  )
  task = Task(0, base, None, 0, int(base.labels.max()) + 1)
  memory = method.memory(setting, -1)
  learn_step(method, Step(config, strategy, folder, task, memory, None))


def images_per_second(folder: pathlib.Path, images: int) -> float:
  """The median over epochs but the first, from the records of a training.

  Args:
    folder: with the event files of one training in it.
    images: in an epoch.
  """
  ended = {}
  for path in folder.rglob("events.out.tfevents.*"):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      if any(v.tag.startswith("epoch_") for v in event.summary.value):
        ended.setdefault(event.step, event.wall_time)
  if len(ended) < 2:
    raise UserError(
      f"only {len(ended)} epochs were recorded in {folder}: train for two or "
      f"more, as the first one also builds graphs."
    )
  seconds = np.diff([ended[epoch] for epoch in sorted(ended)])
  return images / float(np.median(seconds))


def measure_apart(arguments: Sequence[str]) -> dict[str, dict[str, float]]:
  """`bench train` in a process of its own, on devices of its own.

  Logical devices must be set before TensorFlow starts.

  Args:
    arguments: of the command, with `--distribute`.
  """
  with tempfile.TemporaryDirectory() as temporary:
    path = pathlib.Path(temporary) / "rows.json"
    command = [sys.executable, "-m", "ibdrr_tf.bench", *arguments]
    result = subprocess.run(
      [*command, f"--json={path}"], capture_output=True, text=True, check=False
    )
    if result.returncode:
      lines = result.stderr.strip().splitlines() or ["it said nothing"]
      raise UserError(
        f"the measurement on several devices failed ({lines[-1]}): run it "
        f"alone by `python -m ibdrr_tf.bench {' '.join(arguments)}`."
      )
    return json.loads(path.read_text())


def compare(
  one: dict[str, dict[str, float]], several: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
  """Images a second of both, and their ratio.

  Args:
    one: rows of `measure` with one replica.
    several: the same stages with more.
  """
  rows = {}
  for name, row in one.items():
    other = several[name]
    rows[name] = {
      "batch": row["batch"],
      "images": row["images"],
      "images_per_second": row["images_per_second"],
      "replicas": other["replicas"],
      "images_per_second_of_replicas": other["images_per_second"],
      "ratio": other["images_per_second"] / row["images_per_second"],
    }
  return rows
