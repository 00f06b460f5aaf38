"""Batch normalisation's averages, taken anew from other images."""

import tensorflow as tf

__all__ = ["averages_of", "reestimate"]


def averages_of(classifier: tf.keras.Model) -> list[tf.Variable]:
  """The running means and variances of all layers."""
  return [
    average
    for layer in _layers(classifier)
    for average in (layer.moving_mean, layer.moving_variance)
  ]


def reestimate(classifier: tf.keras.Model, batches: tf.data.Dataset) -> None:
  """Replaces all running averages by the mean over batches of images.

  Args:
    classifier: with batch normalisation layers; their other weights stay.
    batches: of images, uint8 [b, h, w, 3].
  """
  layers = _layers(classifier)
  averages = averages_of(classifier)
  before = [average.numpy() for average in averages]
  momentum = [layer.momentum for layer in layers]
  sums, count = [0.0] * len(averages), 0
  for layer in layers:
    layer.momentum = 0.0  # Averages then are those of the batch just seen.
  for images in batches:
    classifier(images, training=True)
    sums = [
      s + average.numpy() for s, average in zip(sums, averages, strict=True)
    ]
    count += 1
  for layer, value in zip(layers, momentum, strict=True):
    layer.momentum = value
  for average, total, old in zip(averages, sums, before, strict=True):
    average.assign(total / count if count else old)


def _layers(
  classifier: tf.keras.Model,
) -> list[tf.keras.layers.BatchNormalization]:
  return [
    layer
    for layer in classifier.layers
    if isinstance(layer, tf.keras.layers.BatchNormalization)
  ]
