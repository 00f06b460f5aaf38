"""A head that looks at angles alone, so that old and new classes weigh alike.

LUCIR (Hou et al., 2019, section 3.2): the logit of a class is the cosine of the
angle between its weights and the features, times one learned scale.
"""

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers.classifier import Classifier

__all__ = ["Cosines", "Scale", "cosine_head", "grow_cosine_head", "imprint"]


class Cosines(tf.keras.layers.Layer):
  """Cosines between unit features and the weights of each class.

  float32 [b, d] -> [b, classes * proxies], class by class.

  Args:
    classes: how many.
    fixed: how many of them, the first ones, have weights that do not learn.
    proxies: vectors of weights that each class has.

  Attributes:
    proxies: see above.
  """

  def __init__(self, classes: int, fixed: int = 0, proxies: int = 1, **kwargs):
    super().__init__(**kwargs)
    self._classes = classes * proxies
    self._fixed = fixed * proxies
    self.proxies = proxies

  def build(self, input_shape: tf.TensorShape) -> None:
    """Makes the weights, [d, fixed] and [d, classes - fixed]."""
    size = int(input_shape[-1])
    limit = size**-0.5
    uniform = tf.keras.initializers.RandomUniform(-limit, limit)
    self.fixed_kernel = self.add_weight(
      "fixed_kernel", [size, self._fixed], initializer="zeros", trainable=False
    )
    self.kernel = self.add_weight(
      "kernel", [size, self._classes - self._fixed], initializer=uniform
    )
    super().build(input_shape)

  @property
  def class_weights(self) -> tf.Tensor:
    """All weights, float32 [d, classes * proxies], of any norm."""
    return tf.concat([self.fixed_kernel, self.kernel], axis=1)

  def call(self, features: tf.Tensor) -> tf.Tensor:
    """Features must have unit norm."""
    return features @ tf.math.l2_normalize(self.class_weights, axis=0)

  def plain(self) -> tf.keras.layers.Layer:
    """What it amounts to among Keras' own layers."""
    return tf.keras.layers.Dense(self._classes, use_bias=False, name=self.name)

  def plain_weights(self) -> list[np.ndarray]:
    """That layer's weights."""
    return [tf.math.l2_normalize(self.class_weights, axis=0).numpy()]


class Scale(tf.keras.layers.Layer):
  """Multiplies by one learned number, which starts at 1."""

  def build(self, input_shape: tf.TensorShape) -> None:
    """Makes the number."""
    self.scale = self.add_weight("scale", [], initializer="ones")
    super().build(input_shape)

  def call(self, cosines: tf.Tensor) -> tf.Tensor:
    """Cosines to logits."""
    return cosines * self.scale

  def plain(self) -> tf.keras.layers.Layer:
    """What it amounts to among Keras' own layers."""
    value = float(self.scale.numpy())
    return tf.keras.layers.Rescaling(value, name=self.name)

  def plain_weights(self) -> list[np.ndarray]:
    """That layer's weights: none."""
    return []


def cosine_head(
  features: tf.Tensor, classes: int, fixed: int = 0, proxies: int = 1
) -> tf.Tensor:
  """Logits from angles; layers "cosines" and "logits".

  Args:
    features: float32 [b, d], of any norm.
    classes: number of logits.
    fixed: how many classes, the first ones, keep their weights.
    proxies: of each class; their cosines are averaged, weighted by their own
      softmax (PODNet's local similarity classifier).
  """
  kind = {"dtype": tf.float32}
  unit = tf.keras.layers.UnitNormalization(name="unit_features", **kind)
  cosines = Cosines(classes, fixed, proxies, name="cosines", **kind)(
    unit(features)
  )
  if proxies > 1:
    cosines = _over_proxies(cosines, classes, proxies)
  return Scale(name="logits", **kind)(cosines)


def _over_proxies(cosines: tf.Tensor, classes: int, proxies: int) -> tf.Tensor:
  """One number a class, by Keras' own layers: [b, c * p] -> [b, c]."""
  layers, kind = tf.keras.layers, {"dtype": tf.float32}
  apart = layers.Reshape([classes, proxies], name="proxies", **kind)(cosines)
  shares = layers.Softmax(name="shares", **kind)(apart)
  parts = layers.Multiply(name="parts", **kind)([shares, apart])
  # Keras has a layer for means over places, not for sums.
  parts = layers.Permute([2, 1], name="by_proxy", **kind)(parts)
  means = layers.GlobalAveragePooling1D(name="mean_part", **kind)(parts)
  return layers.Rescaling(proxies, name="over_proxies", **kind)(means)


def imprint(features: np.ndarray, norm: float) -> np.ndarray:
  """Weights of a class that was never seen: where its features point.

  Args:
    features: float32 [n, d] of its images, of any norm.
    norm: of the weights; LUCIR takes the mean norm of the old ones.

  Returns:
    float32 [d].
  """
  lengths = np.linalg.norm(features, axis=1, keepdims=True)
  mean = (features / np.maximum(lengths, 1e-12)).mean(axis=0)
  return (norm * mean / max(np.linalg.norm(mean), 1e-12)).astype(np.float32)


def grow_cosine_head(
  old: Classifier, new: Classifier, features: list[np.ndarray]
) -> None:
  """Gives a larger head the old classes' weights and imprints the new ones.

  Args:
    old: a classifier with a cosine head.
    new: one over more classes, whose first `old.classes` are fixed.
    features: old features, float32 [n, d], of each new class, if there are.
  """
  weights = old.get_layer("cosines").class_weights.numpy()
  norm = float(np.linalg.norm(weights, axis=0).mean())
  cosines = new.get_layer("cosines")
  cosines.fixed_kernel.assign(weights)
  if features:  # A step may bring no new class.
    cosines.kernel.assign(
      np.stack([imprint(f, norm) for f in features], axis=1)
    )
  new.get_layer("logits").scale.assign(old.get_layer("logits").scale.numpy())
