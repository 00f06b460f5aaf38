"""What every source of images looks like to the rest of the package."""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

__all__ = ["Source", "Split", "in_memory"]


@dataclasses.dataclass(frozen=True)
class Split:
  """Images that can be read by index, and their labels.

  Labels are small and always at hand, so that classes can be selected without
  touching an image. Images are read in batches, inside a graph, and stay uint8
  until a network wants them.

  Attributes:
    labels: int32 [n], the source's own class numbers.
    image_shape: (height, width, 3).
    read: maps indices, int64 [b], to images, uint8 [b, height, width, 3]. It is
      traceable and may run in parallel inside tf.data.
  """

  labels: np.ndarray
  image_shape: tuple[int, int, int]
  read: Callable[[tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Source:
  """A labelled image set with a training and a test split.

  Attributes:
    name: how the user calls it, e.g. "cifar100".
    class_names: one name per class number.
    train: the training split.
    test: the test split.
  """

  name: str
  class_names: tuple[str, ...]
  train: Split
  test: Split


def in_memory(images: np.ndarray, labels: np.ndarray) -> Split:
  """Makes a split of images, uint8 [n, h, w, 3], that are held in RAM."""
  # The tensor is captured by reference: graphs that read it stay small. It is
  # pinned to the CPU because tf.data runs there.
  with tf.device("/CPU:0"):
    tensor = tf.constant(images, tf.uint8)
  return Split(
    labels=np.asarray(labels, np.int32),
    image_shape=tuple(images.shape[1:]),
    read=lambda indices: tf.gather(tensor, indices),
  )
