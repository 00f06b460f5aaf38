"""Batch normalisation's averages, taken anew from other images."""

import numpy as np
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
  """Replaces all running averages by those over all given images.

  Batches may be of different sizes, and differ in what they show: a variance is
  that of all images together, not a mean of variances.

  Args:
    classifier: with batch normalisation layers; their other weights stay.
    batches: of images, uint8 [b, h, w, 3].
  """
  layers = _layers(classifier)
  momentum = [layer.momentum for layer in layers]
  # Sums over images of the mean and of the mean square of each layer.
  sums, count = [(0.0, 0.0)] * len(layers), 0
  for layer in layers:
    layer.momentum = 0.0  # Averages then are those of the batch just seen.
  for images in batches:
    classifier(images, training=True)
    size = len(images)
    for number, layer in enumerate(layers):
      mean, variance = _averages(layer)
      first, second = sums[number]
      sums[number] = (
        first + size * mean,
        second + size * (variance + mean**2),
      )
    count += size
  for layer, value in zip(layers, momentum, strict=True):
    layer.momentum = value
  if count:
    for layer, (first, second) in zip(layers, sums, strict=True):
      mean = first / count
      layer.moving_mean.assign(mean)
      layer.moving_variance.assign(second / count - mean**2)


def _averages(layer: tf.keras.layers.BatchNormalization) -> list[np.ndarray]:
  """Mean and variance, as float64."""
  averages = (layer.moving_mean, layer.moving_variance)
  return [average.numpy().astype(np.float64) for average in averages]


def _layers(
  classifier: tf.keras.Model,
) -> list[tf.keras.layers.BatchNormalization]:
  return [
    layer
    for layer in classifier.layers
    if isinstance(layer, tf.keras.layers.BatchNormalization)
  ]
