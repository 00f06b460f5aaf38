"""A second stream of images, drawn at random for every batch of the first."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import Examples

__all__ = ["draw_beside"]


def draw_beside(
  batches: tf.data.Dataset,
  ids: tf.data.Dataset,
  examples: Examples,
  arrays: Sequence[np.ndarray],
  *,
  draws: int,
  seed: tf.Tensor,
  augment: Augmentation | None,
) -> tf.data.Dataset:
  """Adds to each batch as many images of other examples, drawn at random.

  Images are drawn uniformly with replacement, and augmented as others are. What
  is drawn need not be images: anything that examples read will do.

  Args:
    batches: (images, labels int32 [b], …).
    ids: int64 batch ids, unique within the step.
    examples: what to draw from, at least one.
    arrays: [n, …] each, of which the rows of drawn images are added.
    draws: how often to draw for each batch.
    seed: int32 [2].
    augment: how images vary; None leaves them as they are.

  Returns:
    Batches with (images, *rows of arrays) added for each draw.
  """
  with tf.device("/CPU:0"):
    tables = [tf.constant(array) for array in arrays]

  def draw(count: tf.Tensor, key: tf.Tensor) -> list[tf.Tensor]:
    keys = tf.random.experimental.stateless_split(key, 2)
    numbers = tf.random.stateless_uniform(
      [count], keys[0], 0, len(examples), tf.int64
    )
    images = examples.read(numbers)
    if augment is not None:
      images = augment.apply(images, augment.draw(count, keys[1]))
    return [images, *(tf.gather(table, numbers) for table in tables)]

  def add(number: tf.Tensor, batch: tuple) -> tuple:
    key = tf.random.experimental.stateless_fold_in(seed, number)
    keys = tf.random.experimental.stateless_split(key, draws)
    count = tf.shape(batch[1])[0]
    added = [value for k in range(draws) for value in draw(count, keys[k])]
    return *batch, *added

  return tf.data.Dataset.zip((ids, batches)).map(add, tf.data.AUTOTUNE)
