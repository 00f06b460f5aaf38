"""What the lossy stage keeps, and what that costs before any model.

Entropies of codes as in the paper's tables, quality against bytes beside WebP,
speed, and how well a classifier does that has only seen reconstructions.
"""

import json
import pathlib
import time
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training
from ibdrr_tf.classifier_training import train_classifier
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE, mean_psnr
from ibdrr_tf.data.examples import (
  Examples,
  in_memory,
  ordered_batches,
  select,
)
from ibdrr_tf.data.image_files import find_images, read_images
from ibdrr_tf.data.load import fingerprint
from ibdrr_tf.data.scenario import Scenario, class_order
from ibdrr_tf.data.source import Source
from ibdrr_tf.evaluation import figures, ledger, metrics, rate
from ibdrr_tf.replay import image_formats
from ibdrr_tf.replay.codec import reconstruct

__all__ = [
  "classifier_accuracy",
  "entropy_row",
  "file_row",
  "measure",
  "picture",
  "quality_row",
  "stored_row",
]

_BATCH = 250


def measure(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  models: dict[str, HierarchicalVQVAE],
  photographs: str,
) -> dict[str, Any]:
  """All tables but the classifier's.

  Args:
    config: for the data set's name.
    source: the data set.
    scenario: test images of its classes after the base phase are measured.
    models: the lossy stage of each codec folder.
    photographs: a folder of image files, or "".

  Returns:
    {"entropy": {...}, "quality": {...}}, for JSON.
  """
  train = select(
    source.train, scenario, scenario.seen_labels(scenario.phases[-1])
  )
  unseen = range(scenario.boundaries[0], scenario.boundaries[-1])
  test = select(source.test, scenario, unseen)
  images = test.read(tf.range(len(test), dtype=tf.int64)).numpy()
  entropy, quality = {}, {}
  for folder, model in models.items():
    batches = ordered_batches(train, _BATCH)
    entropy[f"{folder}: {config.dataset}"] = entropy_row(model, batches)
    if photographs:
      files = find_images(photographs)
      large = read_images(files, (224, 224, 3), 224)
      batches = tf.data.Dataset.from_tensor_slices(large).batch(9)
      entropy[f"{folder}: photographs, 224 pixels"] = entropy_row(
        model, batches
      )
    quality[folder] = {
      **quality_row(model, images),
      "trained_classes": _trained_on(
        folder, source, {scenario.order[k] for k in unseen}
      ),
    }
  for level in (0, 5, 20, 50):
    quality[f"WebP quality {level}"] = file_row(images, "webp", level)
  return {"entropy": entropy, "quality": quality}


def entropy_row(
  model: HierarchicalVQVAE, images: tf.data.Dataset
) -> dict[str, float]:
  """Order-0 bits a code: top, bottom, and one histogram for both.

  Args:
    model: the lossy stage.
    images: batches, uint8 [n, h, w, 3].
  """
  top, bottom = _encode(model, images)
  return {
    "top": rate.order0_entropy(top),
    "bottom": rate.order0_entropy(bottom),
    "both": rate.order0_entropy(np.concatenate([top.ravel(), bottom.ravel()])),
  }


def quality_row(
  model: HierarchicalVQVAE, images: np.ndarray
) -> dict[str, float]:
  """Bytes an image (order 0, no models), PSNR and speed.

  Args:
    model: the lossy stage.
    images: uint8 [n, h, w, 3].
  """
  batches = tf.data.Dataset.from_tensor_slices(images).batch(_BATCH)
  for batch in batches.take(1):  # The first call traces.
    model.decode(*model.encode(batch))
  started = time.perf_counter()
  top, bottom = _encode(model, batches)
  encoded = time.perf_counter()
  decoded = _decode(model, top, bottom)
  ended = time.perf_counter()
  height, width = images.shape[1:3]
  return {
    "bytes": rate.code_bytes(top, bottom),
    "psnr": mean_psnr(images, decoded[:, :height, :width]),
    "encode_images_per_second": len(images) / (encoded - started),
    "decode_images_per_second": len(images) / (ended - encoded),
  }


def stored_row(folder: pathlib.Path, images: np.ndarray) -> dict[str, float]:
  """Bytes an image as bit-strings, alone and with the models, and PSNR.

  Args:
    folder: of a codec.
    images: uint8 [n, h, w, 3].

  Returns:
    `bytes`, `bytes_with_models`, with the stored models' share of 50,000
    images, and `psnr` of what is decoded from the bit-strings.
  """
  model = codec_training.load_vqvae(folder)
  batches = tf.data.Dataset.from_tensor_slices(images).batch(_BATCH)
  codec = codec_training.load_code_codec(folder)
  chains = codec.compress(*_encode(model, batches))
  decoded = _decode(model, *codec.decompress(chains))
  height, width = images.shape[1:3]
  size = sum(map(len, chains)) / len(images)
  models = sum(
    (folder / name).stat().st_size
    for name in (codec_training.VQVAE_FILE, codec_training.BITSWAP_FILE)
  )
  return {
    "bytes": size,
    "bytes_with_models": size + models / ledger.FULL_SET,
    "psnr": mean_psnr(images, decoded[:, :height, :width]),
  }


def file_row(images: np.ndarray, kind: str, quality: int) -> dict[str, float]:
  """Bytes an image and PSNR, each image being a lossy file of its own.

  Args:
    images: uint8 [n, h, w, 3].
    kind: "webp" or "jpeg".
    quality: 0 to 100.
  """
  encoded = image_formats.encode(images, kind, quality)
  decoded = image_formats.decode(encoded, kind, images.shape[1:])
  return {
    "bytes": sum(map(len, encoded)) / len(images),
    "psnr": mean_psnr(images, decoded),
  }


def picture(
  model: HierarchicalVQVAE, small: np.ndarray, photographs: str
) -> figures.Figure:
  """Originals beside reconstructions, at the data's own, 64 and 224 pixels."""
  rows = {}
  files = find_images(photographs)[:8]
  for images in (
    small[:8],
    read_images(files, (64, 64, 3), 64),
    read_images(files, (224, 224, 3), 224),
  ):
    title = f"{images.shape[1]} pixels"
    rows[title] = images
    rows[f"{title}, from codes"] = reconstruct(
      model, tf.constant(images)
    ).numpy()
  return figures.image_rows(rows, scale=1.5)


def classifier_accuracy(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  workdir: pathlib.Path,
  model: HierarchicalVQVAE | None,
) -> float:
  """Trains on reconstructions of all classes at once, tests on raw images.

  Args:
    config: `config.classifier` is the recipe.
    source: the data set.
    scenario: its classes are learned in one phase.
    workdir: for checkpoints; a training that was interrupted goes on.
    model: the lossy stage; None trains on the raw images.

  Returns:
    Accuracy in percent.
  """
  labels = range(len(scenario.order))
  train, test = (
    select(split, scenario, labels) for split in (source.train, source.test)
  )
  network, _ = train_classifier(
    _through(model, train) if model else train,
    classes=len(labels),
    image_shape=train.image_shape,
    config=config,
    strategy=tf.distribute.get_strategy(),
    folder=workdir,
  )
  named = network.probabilities(test).argmax(axis=1)
  return metrics.accuracy(
    metrics.confusion_matrix(test.labels, named, len(labels))
  )


def _through(model: HierarchicalVQVAE, examples: Examples) -> Examples:
  """The examples, coded and decoded once."""
  batches = [
    reconstruct(model, images).numpy()
    for images in ordered_batches(examples, _BATCH)
  ]
  return in_memory(np.concatenate(batches), examples.labels)


def _trained_on(folder: str, source: Source, measured: set[int]) -> int | None:
  """How many of the measured classes a codec was trained on.

  Args:
    folder: of the codec; its config says what its base classes were.
    source: the data set that is measured.
    measured: source classes.

  Returns:
    None where that cannot be told: of a codec that was trained on other data,
    or of a run's, which has no config of its own.
  """
  path = pathlib.Path(folder) / "config.json"
  if not path.is_file():
    return None
  claim = json.loads(path.read_text(encoding="utf-8"))
  if claim["data_fingerprint"] != fingerprint(source):
    return None
  order = class_order(claim["data"]["class_order"], len(source.class_names))
  used = claim["data"]["classes"] or len(order)
  base = claim["scenario"]["base_classes"] or used // 2
  return len(measured & set(order[:base]))


def _encode(
  model: HierarchicalVQVAE, batches: tf.data.Dataset
) -> tuple[np.ndarray, np.ndarray]:
  codes = [model.encode(batch) for batch in batches]
  top, bottom = zip(*codes, strict=True)
  return np.concatenate(top), np.concatenate(bottom)


def _decode(
  model: HierarchicalVQVAE, top: np.ndarray, bottom: np.ndarray
) -> np.ndarray:
  codes = tf.data.Dataset.from_tensor_slices((top, bottom)).batch(_BATCH)
  return np.concatenate([model.decode(*batch).numpy() for batch in codes])
