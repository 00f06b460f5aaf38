"""A setting that every `tf.data` pipeline here has in common."""

import tensorflow as tf

__all__ = ["untuned"]


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """The same data set, and all that is built on it, without a tuner.

  TensorFlow's tuner wakes at ever longer intervals, up to a minute, and whoever
  ends an iteration may have to wait until it does: in TensorFlow 2.14 a fourth
  of the time of a short training. Without it, `AUTOTUNE` is one call for each
  core.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  return dataset.with_options(options)
