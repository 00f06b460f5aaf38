"""Labelled images: what every source gives, and every consumer takes."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.tuning import untuned

__all__ = [
  "Examples",
  "concatenate",
  "in_memory",
  "ordered_batches",
  "select",
  "take",
]


@dataclasses.dataclass(frozen=True)
class Examples:
  """Labelled images that are read by index, in batches, inside a graph.

  Labels are small and always at hand, so that classes can be selected without
  touching an image. Images stay uint8 until a network wants them.

  Attributes:
    labels: int32 [n].
    image_shape: (height, width, 3).
    read: maps indices, int64 [b], to images, uint8 [b, height, width, 3]. It is
      traceable and may run in parallel inside tf.data.
  """

  labels: np.ndarray
  image_shape: tuple[int, int, int]
  read: Callable[[tf.Tensor], tf.Tensor]

  def __len__(self) -> int:
    return len(self.labels)

  def steps(self, batch_size: int, replicas: int = 1) -> int:
    """Number of batches in an epoch; see `stream.batch_stops`."""
    return len(stream.batch_stops(len(self), batch_size, replicas))

  def training_batches(
    self,
    *,
    batch_size: int,
    epochs: range,
    seed: tf.Tensor,
    augment: Augmentation | None,
    share: stream.Share = stream.WHOLE,
  ) -> tf.data.Dataset:
    """Batches of shuffled and augmented examples, epoch after epoch.

    Args:
      batch_size: examples in a batch, over all replicas.
      epochs: the epochs to give, e.g. `range(3, 20)` to go on after three.
      seed: int32 [2], the seed of this training set.
      augment: how images vary; None leaves them as they are.
      share: which parts of each batch to give, one after the other.

    Returns:
      A data set of (images uint8 [b, h, w, 3], labels int32 [b]).
    """
    labels = tf.constant(self.labels)

    def batch(indices: tf.Tensor, drawn: tf.Tensor) -> tuple:
      images = self.read(indices)
      if augment is not None:
        images = augment.apply(images, drawn)
      return images, tf.gather(labels, indices)

    return (
      stream.shuffled_batches(
        len(self),
        lambda key: (augment or Augmentation(0)).draw(len(self), key),
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
        share=share,
      )
      .map(batch, num_parallel_calls=tf.data.AUTOTUNE)
      .prefetch(tf.data.AUTOTUNE)
    )


def in_memory(images: np.ndarray, labels: np.ndarray) -> Examples:
  """Makes examples of images, uint8 [n, h, w, 3], that are held in RAM."""
  # The tensor is captured by reference: graphs that read it stay small. It is
  # pinned to the CPU because tf.data runs there.
  with tf.device("/CPU:0"):
    tensor = tf.constant(images, tf.uint8)
  return Examples(
    labels=np.asarray(labels, np.int32),
    image_shape=tuple(images.shape[1:]),
    read=lambda indices: tf.gather(tensor, indices),
  )


def select(split: Examples, scenario: Scenario, labels: range) -> Examples:
  """Takes the examples of some labels from a split of a data set.

  Args:
    split: its labels are the source's own class numbers.
    scenario: gives each source class its label.
    labels: the labels to take.
  """
  all_labels = scenario.label_of(split.labels)
  chosen = np.flatnonzero(np.isin(all_labels, labels)).astype(np.int64)
  return take(dataclasses.replace(split, labels=all_labels), chosen)


def take(examples: Examples, chosen: np.ndarray) -> Examples:
  """Some of the examples, by their indices, int64 [m]."""
  table = tf.constant(chosen, tf.int64)
  return Examples(
    labels=examples.labels[chosen],
    image_shape=examples.image_shape,
    read=lambda indices: examples.read(tf.gather(table, indices)),
  )


def concatenate(parts: Sequence[Examples]) -> Examples:
  """Joins examples from several places into one set, in the given order."""
  parts = [part for part in parts if len(part)]
  if len(parts) == 1:
    return parts[0]
  starts = np.cumsum([0] + [len(part) for part in parts])

  def read(indices: tf.Tensor) -> tf.Tensor:
    # Each part reads only what is its own; the pieces are put back in order.
    places, pieces = [], []
    for part, start, stop in zip(parts, starts, starts[1:], strict=False):
      place = tf.where((indices >= start) & (indices < stop))[:, 0]
      places.append(tf.cast(place, tf.int32))
      pieces.append(part.read(tf.gather(indices, place) - start))
    return tf.dynamic_stitch(places, pieces)

  return Examples(
    np.concatenate([part.labels for part in parts]), parts[0].image_shape, read
  )


def ordered_batches(examples: Examples, batch_size: int) -> tf.data.Dataset:
  """Batches of images, uint8 [b, h, w, 3], in order and as they are."""
  return (
    untuned(tf.data.Dataset.range(len(examples)))
    .batch(batch_size)
    .map(examples.read, num_parallel_calls=tf.data.AUTOTUNE)
    .prefetch(tf.data.AUTOTUNE)
  )
