"""Finds the data set that a configuration names, and divides it into phases."""

import hashlib

import ml_collections
import numpy as np

from ibdrr_tf.data.folder import load_folder
from ibdrr_tf.data.image_files import BrokenImages
from ibdrr_tf.data.scenario import Scenario, class_order, make_scenario
from ibdrr_tf.data.shapes import load_shapes
from ibdrr_tf.data.source import Source
from ibdrr_tf.data.tfds import load_tfds
from ibdrr_tf.errors import UserError

__all__ = ["fingerprint", "load_data"]


def load_data(config: ml_collections.ConfigDict) -> tuple[Source, Scenario]:
  """Loads a data set and its scenario.

  Args:
    config: `dataset` is "shapes" (generated), "folder" (image files) or the
      name of a TensorFlow Datasets set such as "cifar100"; `data_dir`, `data`,
      `scenario` and `seed` say the rest.
  """
  source = _load_source(config)
  scenario = make_scenario(
    class_order(config.data.class_order, len(source.class_names)),
    classes=config.data.classes,
    base_classes=config.scenario.base_classes,
    phases=config.scenario.phases,
  )
  for name, split in (("training", source.train), ("test", source.test)):
    counts = np.bincount(split.labels, minlength=len(source.class_names))
    for used in scenario.order:
      if not counts[used]:
        raise UserError(
          f"class {source.class_names[used]!r} of {source.name} has no {name} "
          f"images: add some, or leave it out by --config.data.class_order."
        )
  return source, scenario


def fingerprint(source: Source) -> str:
  """Tells one data set from another, wherever its files are.

  It is made of class names, image shapes and the labels of all images. Images
  that were replaced one by one by others are not noticed.
  """
  digest = hashlib.sha256(repr(source.class_names).encode())
  for split in (source.train, source.test):
    digest.update(repr(split.image_shape).encode())
    digest.update(split.labels.astype("<i4").tobytes())
  return digest.hexdigest()[:16]


def _load_source(config: ml_collections.ConfigDict) -> Source:
  data = config.data
  if config.dataset == "shapes":
    return load_shapes(
      ram_bytes=data.ram_bytes,
      seed=config.seed,
      train_per_class=data.shapes_train,
      test_per_class=data.shapes_test,
      image_size=data.image_size or 32,
    )
  options = {"image_size": data.image_size, "ram_bytes": data.ram_bytes}
  if config.dataset == "folder":
    try:
      return load_folder(
        config.data_dir, skip_broken=data.skip_broken, **options
      )
    except BrokenImages as error:
      raise UserError(
        f"{error} --config.data.skip_broken=true leaves them out."
      ) from error
  return load_tfds(config.dataset, config.data_dir, **options)
