"""A setting that every `tf.data` pipeline here has in common."""

import tensorflow as tf

__all__ = ["untuned"]


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """The same data set, and all that is built on it, without a tuner.

  TensorFlow's tuner wakes at ever longer intervals, up to a minute, and whoever
  ends an iteration may have to wait until it does: with TensorFlow 2.14, 26 of
  the 215 seconds of a short run.
  """
  options = tf.data.Options()
  options.autotune.enabled = False
  return dataset.with_options(options)
