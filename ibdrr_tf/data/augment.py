"""Random crops and flips that are a pure function of the example and epoch."""

import tensorflow as tf

__all__ = ["crop_and_flip", "draw_crops"]


def draw_crops(count: int, padding: int, seed: tf.Tensor) -> tf.Tensor:
  """Draws one crop and flip for each example of a training set.

  They are drawn for all examples at once and looked up by example, so they do
  not depend on the batch in which an example happens to be, nor on which device
  or after which interruption it is used.

  Args:
    count: number of examples, n.
    padding: pixels added on each side.
    seed: int32 [2], stateless: the same seed gives the same crops.

  Returns:
    int32 [n, 3]: row offset and column offset in [0, 2 * padding], and 0 or 1
    for a horizontal flip.
  """
  seeds = tf.random.experimental.stateless_split(seed, 2)
  offsets = tf.random.stateless_uniform(
    [count, 2], seeds[0], 0, 2 * padding + 1, tf.int32
  )
  flips = tf.random.stateless_uniform([count, 1], seeds[1], 0, 2, tf.int32)
  return tf.concat([offsets, flips], axis=1)


def crop_and_flip(
  images: tf.Tensor, crops: tf.Tensor, padding: int
) -> tf.Tensor:
  """Pads by reflection, then crops and flips each image of a batch.

  With black borders, 12 epochs on 20 classes of CIFAR-100 end three points
  lower (65.1 and 68.15 %, one seed; the protocol of `bench accuracy`).

  Args:
    images: [b, h, w, c], of any dtype; it is kept.
    crops: int32 [b, 3], as `draw_crops` gives them.
    padding: pixels added on each side.

  Returns:
    [b, h, w, c].
  """
  height, width = images.shape[1:3]
  rows = crops[:, 0, tf.newaxis] + tf.range(height)
  columns = tf.range(width)
  columns = tf.where(
    crops[:, 2, tf.newaxis] == 1, columns[::-1], columns
  )  # A flip is a crop whose columns are read backwards.
  columns += crops[:, 1, tf.newaxis]
  rows = _reflected(rows - padding, height)
  columns = _reflected(columns - padding, width)
  cropped = tf.gather(images, rows, axis=1, batch_dims=1)
  return tf.gather(cropped, columns, axis=2, batch_dims=1)


def _reflected(places: tf.Tensor, size: int) -> tf.Tensor:
  """Where an image, reflected at its edges without end, has a place."""
  period = max(2 * size - 2, 1)
  places = tf.abs(places) % period
  return tf.where(places < size, places, period - places)
