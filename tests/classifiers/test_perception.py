import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers.perception import feature_distance
from ibdrr_tf.random_seed import set_random_seed


def build():
  set_random_seed(0)
  return classifiers.build_classifier(
    backbone="resnet18", width=2, image_shape=(16, 16, 3), classes=3
  )


def images(seed):
  generator = np.random.default_rng(seed)
  return generator.integers(0, 256, (4, 16, 16, 3)).astype(np.uint8)


def test_distance_is_zero_for_itself_and_grows_with_noise():
  distance = feature_distance(build())
  x = images(0) / np.float32(255)
  noise = np.random.default_rng(1).normal(size=x.shape).astype(np.float32)
  small, large = (distance(x, x + s * noise).numpy() for s in (0.02, 0.2))
  np.testing.assert_allclose(distance(x, x), 0, atol=1e-9)
  assert (small > 0).all() and (small < large).all()


def test_distance_equals_its_definition_on_the_bytes_the_classifier_sees():
  model = build()
  a, b = images(0), images(1)
  want = np.zeros(4)
  for stage in range(4):
    layer = model.get_layer(f"stage_{stage}").output
    maps = tf.keras.Model(model.inputs, layer)
    fa, fb = maps(a).numpy(), maps(b).numpy()
    error = ((fa - fb) ** 2).mean(axis=(1, 2, 3))
    want += error / ((fa**2).mean(axis=(1, 2, 3)) + 1e-6) / 4
  got = feature_distance(model)(
    tf.constant(a, tf.float32) / 255, tf.constant(b, tf.float32) / 255
  )
  np.testing.assert_allclose(got, want, rtol=1e-4)


def test_gradient_reaches_the_reconstruction_only():
  model = build()
  distance = feature_distance(model)
  x = tf.constant(images(0) / 255.0, tf.float32)
  y = tf.Variable(images(1) / 255.0, dtype=tf.float32)
  with tf.GradientTape() as tape:
    tape.watch(x)
    loss = tf.reduce_sum(distance(x, y))
  of_x, of_y = tape.gradient(loss, [x, y])
  assert of_x is None
  assert float(tf.reduce_max(tf.abs(of_y))) > 0
