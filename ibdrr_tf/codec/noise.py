"""Noise of training that does not depend on which replica has an image."""

import tensorflow as tf

__all__ = ["place_of", "uniform"]


def place_of(size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Where this replica's images are in the batch, and how many that has.

  Args:
    size: how many this replica has, int32 [1].
  """
  context = tf.distribute.get_replica_context()
  if context.num_replicas_in_sync == 1:
    return tf.constant(0), size[0]
  sizes = context.all_gather(size, axis=0)
  before = tf.range(tf.size(sizes)) < context.replica_id_in_sync_group
  return tf.reduce_sum(tf.boolean_mask(sizes, before)), tf.reduce_sum(sizes)


def uniform(
  shape: tf.Tensor, seed: tf.Tensor, first: tf.Tensor, total: tf.Tensor
) -> tf.Tensor:
  """Random numbers in (0, 1): some images' part of a batch.

  Args:
    shape: int32, that of the result; the first axis is images.
    seed: int64 [2].
    first: where they begin in the batch.
    total: number of images of the batch.
  """
  drawn = tf.random.stateless_uniform(
    tf.concat([[total], shape[1:]], axis=0), seed, 1e-6, 1.0 - 1e-6
  )
  return drawn[first : first + shape[0]]
