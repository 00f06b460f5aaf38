"""What a classifier learns from remembered images, at equal bytes.

Every form keeps all images of 20 classes of CIFAR-100 within a budget of bytes
an image, in which its models count. A classifier is trained on what comes back
and tested on raw images. A model's bytes are divided by the number of images
that the memory is to hold (10,000 or 50,000); the same 10,000 are trained on.

Each training is kept in the JSON file as it ends, so that the same command goes
on where it was interrupted.
"""

import dataclasses
import json
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.classifier_training import train_classifier
from ibdrr_tf.codec.lossy.vqvae import mean_psnr
from ibdrr_tf.config import get_config, use_one_cycle
from ibdrr_tf.data.examples import Examples, in_memory, select, take
from ibdrr_tf.data.load import fingerprint
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.source import Source
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import metrics

__all__ = ["Form", "Kept", "Plan", "measure", "protocol", "table"]

# Fields of `config.classifier` that a training depends on.
_RECIPE = (
  "backbone",
  "stem",
  "width",
  "epochs",
  "schedule",
  "batch_size",
  "padding",
  "learning_rate",
  "momentum",
  "weight_decay",
)


@dataclasses.dataclass(frozen=True)
class Plan:
  """What to measure.

  Attributes:
    images: numbers of images that models are divided by.
    budgets: bytes an image, models included.
    seeds: how many seeds of the classifier: 0, 1, …; with 0, none is trained.
    steps: in how many the images arrive.
  """

  images: tuple[int, ...]
  budgets: tuple[int, ...]
  seeds: int
  steps: int = 1


class Kept(NamedTuple):
  """Images as a form keeps them.

  Attributes:
    setting: what tells it from others of the same form. Where it is the same
      at two budgets, one classifier serves both.
    images: uint8 [n, h, w, 3], decoded.
    payload: bytes of all of them.
    models: bytes of what decodes them.
    places: int [n], which of the images they are; None is all.
  """

  setting: str
  images: np.ndarray
  payload: int
  models: int = 0
  places: np.ndarray | None = None


# Keeps images, uint8 [n, h, w, 3], with labels, int32 [n], sorted by class, in
# so many bytes at most: those of the images, plus those of the models divided
# by the last argument. None is that it cannot.
Form = Callable[[np.ndarray, np.ndarray, float, float], Kept | None]


def protocol() -> ml_collections.ConfigDict:
  """The classifier's recipe: about five minutes on one core."""
  config = get_config()
  config.dataset = "cifar100"
  config.precision = "auto"
  config.data.classes = 20
  use_one_cycle(config, epochs=12)
  config.classifier.width = 12
  config.classifier.batch_size = 128
  return config


def measure(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  forms: dict[str, Form],
  plan: Plan,
  path: pathlib.Path,
) -> dict[str, Any]:
  """Trains a classifier for each form, budget and seed.

  Args:
    config: `config.classifier` is the recipe.
    source: the data set.
    scenario: its classes are learned at once.
    forms: by name, beside the raw images.
    plan: what to measure.
    path: of the JSON file, which is read first and written after each training.

  Returns:
    What the file has: `protocol`; `rows` of `form`, `images`, `budget`,
    `bytes_per_image` (models included), `payload_per_image`, `model_bytes`,
    `setting`, `kept` (images), `psnr` and `accuracy` (%, one a seed); and
    `trainings`, the accuracies by form, setting and seed.
  """
  labels = range(len(scenario.order))
  train, test = (
    select(split, scenario, labels) for split in (source.train, source.test)
  )
  train = take(train, np.argsort(train.labels, kind="stable"))
  record = _open(path, config, source, plan.steps)
  forms = {"raw": _raw} | forms
  images = train.read(tf.range(len(train), dtype=tf.int64)).numpy()
  cells = [("raw", None, None)]
  cells += [
    (name, count, budget)
    for count in plan.images
    for budget in plan.budgets
    for name in list(forms)[1:]
  ]
  # All forms with one seed first: an interrupted run is still a comparison.
  for seed in range(plan.seeds) if plan.seeds else (None,):
    for cell in cells:
      _measure_cell(
        cell, seed, forms, (images, train.labels), test, config, record
      )
      files.write_json(path, record)
  return record


def table(record: dict[str, Any]) -> dict[str, dict[str, float]]:
  """Rows for people: the mean accuracy, and its spread over seeds."""
  rows = {}
  for row in record["rows"]:
    name = row["form"]
    if row["budget"]:
      name += f", {row['images']:,} images, {row['budget']} bytes"
    seeds = row["accuracy"]
    if row["setting"] is None:
      continue
    rows[name] = {
      "bytes_per_image": row["bytes_per_image"],
      "psnr": row["psnr"],
      "accuracy": float(np.mean(seeds)) if seeds else None,
      "deviation": float(np.std(seeds, ddof=1)) if len(seeds) > 1 else None,
      "seeds": len(seeds),
    }
  return rows


def _open(
  path: pathlib.Path,
  config: ml_collections.ConfigDict,
  source: Source,
  steps: int,
) -> dict[str, Any]:
  """What was measured before, by the same protocol on the same data."""
  now = {
    "classifier": {name: config.classifier[name] for name in _RECIPE},
    "precision": config.precision,
    "class_order": config.data.class_order,
    "classes": config.data.classes,
    "data_fingerprint": fingerprint(source),
  }
  if steps > 1:
    now["steps"] = steps
  now = json.loads(json.dumps(now))  # Tuples are lists there.
  if not path.is_file():
    return {"protocol": now, "rows": [], "trainings": {}}
  record = json.loads(path.read_text(encoding="utf-8"))
  then = dict(record.get("protocol", {}))
  recipe = then.get("classifier", {})
  then["classifier"] = {name: recipe.get(name) for name in _RECIPE}
  if then != now:
    raise UserError(
      f"{path} was measured by another protocol or on other data: give another "
      f"--json."
    )
  return record


def _measure_cell(cell, seed, forms, train, test, config, record) -> None:
  """Fills in one row for one seed; what is there already is not done again."""
  name, count, budget = cell
  images, labels = train
  share = count / len(labels) if count else 1.0
  room = budget * len(labels) if budget else np.inf
  row, kept = _find(record["rows"], cell), None
  if row is None:
    kept = forms[name](images, labels, room, share)
    row = _row(cell, kept, images, share)
    record["rows"].append(row)
    print(f"{name}, {budget} bytes, {count} images: {row}", flush=True)
  if row["setting"] is None or seed is None:
    return
  key = f"{name} | {row['setting']} | seed {seed}"
  if key not in record["trainings"]:
    if kept is None:
      kept = forms[name](images, labels, room, share)
      if kept is None or kept.setting != row["setting"]:
        raise UserError(
          f"{name} at {budget} bytes an image is no longer what was measured "
          f"({row['setting']}): remove that row from the file, or give another "
          f"--json."
        )
    print(f"training: {key}, for {budget} bytes an image", flush=True)
    record["trainings"][key] = _accuracy(config, kept, labels, test, seed)
  if len(row["accuracy"]) == seed:
    row["accuracy"].append(record["trainings"][key])
    print(f"{name}, {budget} bytes, {count} images: {row}", flush=True)


def _raw(images, labels, room, share) -> Kept:
  """The images themselves, whatever the budget."""
  del labels, room, share
  return Kept("pixels", images, images.nbytes)


def _find(rows: list[dict[str, Any]], cell: tuple) -> dict[str, Any] | None:
  for row in rows:
    if (row["form"], row["images"], row["budget"]) == cell:
      return row
  return None


def _row(
  cell: tuple, kept: Kept | None, images: np.ndarray, share: float
) -> dict[str, Any]:
  name, count, budget = cell
  row = {"form": name, "images": count, "budget": budget, "accuracy": []}
  if kept is None:
    return {**row, "setting": None, "bytes_per_image": None, "psnr": None}
  number = len(images)
  if kept.places is not None:
    images = images[kept.places]
  return {
    **row,
    "setting": kept.setting,
    "bytes_per_image": (kept.payload + kept.models / share) / number,
    "payload_per_image": kept.payload / number,
    "model_bytes": kept.models,
    "kept": len(kept.images),
    "psnr": mean_psnr(images, kept.images),
  }


def _accuracy(
  config: ml_collections.ConfigDict,
  kept: Kept,
  labels: np.ndarray,
  test: Examples,
  seed: int,
) -> float:
  """Trains on what was kept, tests on raw images: percent."""
  config = config.copy_and_resolve_references()
  config.seed = seed
  # Who keeps fewer images takes as many steps.
  full = config.classifier.epochs * len(labels)
  config.classifier.updates = full // config.classifier.batch_size
  if kept.places is not None:
    labels = labels[kept.places]
  with tempfile.TemporaryDirectory() as folder:
    network, _ = train_classifier(
      in_memory(kept.images, labels),
      classes=int(test.labels.max()) + 1,
      image_shape=test.image_shape,
      config=config,
      strategy=tf.distribute.get_strategy(),
      folder=pathlib.Path(folder),
    )
  named = network.probabilities(test).argmax(axis=1)
  return metrics.accuracy(
    metrics.confusion_matrix(test.labels, named, int(test.labels.max()) + 1)
  )
