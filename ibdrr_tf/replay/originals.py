"""Finds the originals of images that a memory gives back."""

import dataclasses

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.examples import Examples, ordered_batches, take
from ibdrr_tf.evaluation.recalled import Recalled

__all__ = ["with_originals"]

# Images are told apart by the mean colours of so many parts of each side.
_PARTS = 8
_BATCH = 250


def with_originals(recalled: Recalled, examples: Examples) -> Recalled:
  """Adds the original of each image: the nearest one of its class.

  A memory may drop and reorder images, so positions do not tell. The nearest
  image is the original unless two images of a class look all but the same.

  Args:
    recalled: of `Memory.sample`.
    examples: all images that were learned, with the labels of the memory.
  """
  originals = np.zeros_like(recalled.images)
  for label in np.unique(recalled.labels):
    mine = np.flatnonzero(recalled.labels == label)
    candidates = take(examples, np.flatnonzero(examples.labels == label))
    means = np.concatenate(
      [_means(batch) for batch in ordered_batches(candidates, _BATCH)]
    )
    wanted = _means(tf.constant(recalled.images[mine]))
    away = ((wanted[:, np.newaxis] - means[np.newaxis]) ** 2).sum(axis=-1)
    nearest = tf.constant(away.argmin(axis=1), tf.int64)
    originals[mine] = candidates.read(nearest)
  return dataclasses.replace(recalled, originals=originals)


def _means(images: tf.Tensor) -> np.ndarray:
  """Mean colours of the parts of images: float32 [n, d]."""
  small = tf.image.resize(images, [_PARTS, _PARTS], "area")
  return small.numpy().reshape(len(images), -1)
