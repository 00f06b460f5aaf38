"""Losses that several methods share, as means over a batch."""

import tensorflow as tf

__all__ = [
  "batch_mean",
  "cross_entropy",
  "distillation",
  "mean_of_chosen",
  "over_replicas",
]


def over_replicas(
  operation: tf.distribute.ReduceOp, value: tf.Tensor
) -> tf.Tensor:
  """Sum or mean of a value over all replicas; itself where there is one."""
  context = tf.distribute.get_replica_context()
  if context.num_replicas_in_sync == 1:
    return value
  return context.all_reduce(operation, value)


def mean_of_chosen(values: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
  """The mean of some values of a batch; 0 without any.

  Replicas may have chosen different numbers of them. What this gives, averaged
  over replicas, is the mean over the chosen values of all.

  Args:
    values: float32 [b].
    chosen: bool [b].
  """
  chosen = tf.cast(chosen, tf.float32)
  count = over_replicas(tf.distribute.ReduceOp.MEAN, tf.reduce_sum(chosen))
  return tf.math.divide_no_nan(tf.reduce_sum(values * chosen), count)


def batch_mean(values: tf.Tensor) -> tf.Tensor:
  """The mean of the values of a batch, float32 [b].

  Replicas may have parts of different sizes: averaged over replicas, it is the
  mean over the whole batch.
  """
  return mean_of_chosen(values, tf.ones_like(values, tf.bool))


def cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
  """Softmax cross-entropy.

  Args:
    labels: int [b].
    logits: float32 [b, classes].
  """
  return batch_mean(
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  )


def distillation(
  old_logits: tf.Tensor, logits: tf.Tensor, temperature: float
) -> tf.Tensor:
  """Cross-entropy of the softened old output and the softened new one.

  -sum_k softmax(old / T)_k log softmax(new / T)_k, as in PyCIL: without the
  factor T^2 of Hinton et al. (2015).

  Args:
    old_logits: float32 [b, old classes], of the old network.
    logits: float32 [b, old classes], the same classes of the new one.
    temperature: T.
  """
  targets = tf.nn.softmax(tf.stop_gradient(old_logits) / temperature)
  log_shares = tf.nn.log_softmax(logits / temperature)
  return -batch_mean(tf.reduce_sum(targets * log_shares, axis=1))
