"""Streams of batches for training and for testing.

Nothing here keeps state: the order of examples and their augmentation are
functions of (seed, epoch, example). A run that was interrupted after an epoch
goes on with the very batches that it would have seen.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.tuning import untuned
from ibdrr_tf.errors import UserError

__all__ = [
  "WHOLE",
  "Share",
  "batch_stops",
  "fold_in",
  "shuffled",
  "shuffled_batches",
]


def fold_in(seed: int, *path: int) -> tf.Tensor:
  """Derives a stateless seed, int32 [2], from a seed and a path of numbers."""
  folded = tf.constant([seed & 0x7FFFFFFF, 0], tf.int32)
  for step in path:
    folded = tf.random.experimental.stateless_fold_in(folded, step)
  return folded


def shuffled(count: int, seed: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
  """The order of examples in an epoch: int64 [count]."""
  return tf.random.experimental.stateless_shuffle(
    tf.range(count, dtype=tf.int64),
    tf.random.experimental.stateless_fold_in(seed, epoch),
  )


@dataclasses.dataclass(frozen=True)
class Share:
  """Which parts of every batch are read here.

  A batch is divided among replicas, which may be in several processes. Each
  process reads what its own replicas need, and nothing twice.

  Attributes:
    replicas: number of parts of a batch.
    mine: numbers of the parts that are read here, in order.
  """

  replicas: int = 1
  mine: range = range(1)

  @staticmethod
  def of(context: tf.distribute.InputContext) -> "Share":
    """That of a process, as `tf.distribute` describes it."""
    replicas = context.num_replicas_in_sync
    each = replicas // context.num_input_pipelines
    first = context.input_pipeline_id * each
    return Share(replicas, range(first, first + each))

  def parts(self, stops: np.ndarray) -> np.ndarray:
    """Where the parts read here begin and end: int64 [steps * mine, 2].

    Args:
      stops: where batches end in an epoch, int64 [steps].
    """
    starts = np.concatenate([[0], stops[:-1]])[:, np.newaxis]
    sizes = stops[:, np.newaxis] - starts
    ends = [
      starts + sizes * (np.array(self.mine) + step) // self.replicas
      for step in (0, 1)
    ]
    return np.stack(ends, axis=2).reshape(-1, 2)

  def numbers(self, steps: range) -> tf.data.Dataset:
    """A number for each part of some steps that no other part has."""
    numbers = tf.data.Dataset.range(steps.start, steps.stop).flat_map(
      lambda step: tf.data.Dataset.range(self.mine.start, self.mine.stop).map(
        lambda part: step * self.replicas + part
      )
    )
    return untuned(numbers)


WHOLE = Share()


def batch_stops(count: int, batch_size: int, replicas: int) -> np.ndarray:
  """Where batches end in an epoch: int64 [steps].

  The last batch may be smaller. If it had less than one example for each
  replica, the one before it takes them in.
  """
  stops = [*range(batch_size, count, batch_size), count]
  if len(stops) > 1 and count - stops[-2] < replicas:
    del stops[-2]
  if min(count, batch_size) < replicas:
    raise UserError(
      f"batches of {min(count, batch_size)} images cannot be divided among "
      f"{replicas} devices: use fewer devices, or larger batches."
    )
  return np.array(stops, np.int64)


def shuffled_batches(
  count: int,
  draw: Callable[[tf.Tensor], tf.Tensor],
  *,
  batch_size: int,
  epochs: range,
  seed: tf.Tensor,
  share: Share = WHOLE,
) -> tf.data.Dataset:
  """Batches of examples' numbers, each with what was drawn for it.

  Args:
    count: number of examples, n.
    draw: draws the random numbers of an epoch from its seed, int32 [2]: [n, …].
    batch_size: see `examples.Examples.training_batches`, as are the others.
    epochs: the epochs to give.
    seed: int32 [2].
    share: which parts of each batch to give.

  Returns:
    A data set of (numbers int64 [b], draws [b, …]).
  """
  parts = share.parts(batch_stops(count, batch_size, share.replicas))

  def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
    order = shuffled(count, seed, epoch)
    drawn = draw(tf.random.experimental.stateless_fold_in(seed, epoch))

    def part(ends: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
      numbers = order[ends[0] : ends[1]]
      return numbers, tf.gather(drawn, numbers)

    return tf.data.Dataset.from_tensor_slices(parts).map(part)

  numbers = tf.data.Dataset.range(epochs.start, epochs.stop)
  return untuned(numbers.flat_map(epoch_batches))
