"""How far apart two images are in the eyes of a classifier."""

from collections.abc import Callable

import tensorflow as tf

from ibdrr_tf.classifiers.classifier import Classifier

__all__ = ["feature_distance"]

# Keeps a dead channel from dividing by zero.
_EPSILON = 1e-6


def feature_distance(
  classifier: Classifier,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """Makes a distance from the features of a frozen classifier.

  Squared differences of the feature maps after each stage, relative to the
  original's own energy there, averaged over the stages: what tells classes
  apart weighs more than what merely fills pixels.

  Args:
    classifier: a trained one; it is used in inference mode.

  Returns:
    A function of (images, reconstructions), both float32 [n, h, w, 3] on
    0 .. 1, to float32 [n].
  """
  stages = [
    layer.output
    for layer in classifier.layers
    if layer.name.startswith("stage_")
  ]
  scale = classifier.get_layer("scale")
  # Entered behind the byte input, which has no gradient.
  network = tf.keras.Model(scale.output, stages)

  def maps(images: tf.Tensor) -> list[tf.Tensor]:
    return network(images * 255.0 * scale.scale + scale.offset, training=False)

  def distance(images: tf.Tensor, reconstructions: tf.Tensor) -> tf.Tensor:
    total = 0.0
    for want, got in zip(maps(images), maps(reconstructions), strict=True):
      want = tf.stop_gradient(want)
      error = tf.reduce_mean(tf.square(want - got), axis=[1, 2, 3])
      energy = tf.reduce_mean(tf.square(want), axis=[1, 2, 3])
      total += error / (energy + _EPSILON)
    return total / len(stages)

  return distance
