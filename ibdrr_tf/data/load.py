"""Finds the data set that a configuration names, and divides it into phases."""

import dataclasses
import hashlib

import ml_collections
import numpy as np

from ibdrr_tf.data.arriving import hold_out
from ibdrr_tf.data.examples import take
from ibdrr_tf.data.folder import load_folder
from ibdrr_tf.data.image_files import BrokenImages
from ibdrr_tf.data.scenario import Scenario, class_order, make_scenario
from ibdrr_tf.data.shapes import load_shapes
from ibdrr_tf.data.source import Source
from ibdrr_tf.data.tfds import load_tfds
from ibdrr_tf.errors import UserError

__all__ = ["describe", "fingerprint", "load_data"]


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
  tests = "test"
  if config.data.validation:
    source, tests = _with_validation(config, source), "validation"
  for name, split in (("training", source.train), (tests, source.test)):
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


def describe(
  config: ml_collections.ConfigDict, source: Source, scenario: Scenario
) -> dict[str, str | int]:
  """What the accuracies of two runs must have in common to be compared.

  The seed is left out, which decides what images are held out. Only
  `class_order` may differ between runs of one table.
  """
  names = repr(source.class_names).encode()
  return {
    "class_order": config.data.class_order,
    "evaluated_on": "validation" if config.data.validation else "test",
    "evaluated_images": int(np.isin(source.test.labels, scenario.order).sum()),
    "training_images": int(np.isin(source.train.labels, scenario.order).sum()),
    "image_size": source.train.image_shape[0],
    "class_names": hashlib.sha256(names).hexdigest()[:16],
  }


def _with_validation(
  config: ml_collections.ConfigDict, source: Source
) -> Source:
  """The same without its test images: some training images take their place."""
  train, held_out = hold_out(source.train, config.seed, config.data.validation)
  if held_out is None:
    held_out = take(train, np.zeros(0, np.int64))
  return dataclasses.replace(source, train=train, test=held_out)


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
