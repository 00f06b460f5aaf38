"""Batch normalisation's running averages."""

import tensorflow as tf

__all__ = ["averages_of"]


def averages_of(classifier: tf.keras.Model) -> list[tf.Variable]:
  """The running means and variances of all layers."""
  return [
    average
    for layer in _layers(classifier)
    for average in (layer.moving_mean, layer.moving_variance)
  ]


def _layers(
  classifier: tf.keras.Model,
) -> list[tf.keras.layers.BatchNormalization]:
  return [
    layer
    for layer in classifier.layers
    if isinstance(layer, tf.keras.layers.BatchNormalization)
  ]
