"""Shrink and perturb: between the last weights and random ones."""

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers.warm_start import shrink_perturb
from ibdrr_tf.random_seed import set_random_seed


def build(classes):
  return classifiers.build_classifier(
    backbone="resnet8", width=4, image_shape=(8, 8, 3), classes=classes
  )


def test_kernels_are_mixed_and_the_rest_is_taken_over():
  set_random_seed(0)
  old, new = build(3), build(5)
  for layer in old.layers:
    if isinstance(layer, tf.keras.layers.BatchNormalization):
      layer.set_weights([w + 0.5 for w in layer.get_weights()])
  random = {w.name: w.numpy() for w in new.embed.weights}
  head = new.get_layer("logits").get_weights()
  shrink_perturb(old, new, 0.4, 0.1)
  for before, now in zip(old.embed.weights, new.embed.weights, strict=True):
    want = before.numpy()
    if want.ndim > 1:
      want = 0.4 * want + 0.1 * random[now.name]
    np.testing.assert_allclose(now.numpy(), want, rtol=1e-6)
  kernel, bias = new.get_layer("logits").get_weights()
  old_kernel, old_bias = old.get_layer("logits").get_weights()
  np.testing.assert_allclose(
    kernel[:, :3], 0.4 * old_kernel + 0.1 * head[0][:, :3], rtol=1e-5
  )
  np.testing.assert_allclose(kernel[:, 3:], 0.5 * head[0][:, 3:], rtol=1e-5)
  np.testing.assert_allclose(bias[:3], old_bias)
