import functools

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import cosine
from ibdrr_tf.classifiers.scaled_conv import ScaledConv2D


def build(classes, fixed=0, **options):
  return classifiers.build_classifier(
    backbone="resnet8",
    width=4,
    image_shape=(8, 8, 3),
    classes=classes,
    head=lambda x, n: cosine.cosine_head(x, n, fixed),
    last_relu=False,
    **options,
  )


def images(count=6):
  generator = np.random.default_rng(0)
  return generator.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def test_logits_are_scaled_cosines():
  model = build(3)
  model.get_layer("logits").scale.assign(7.0)
  features = model.embed(images()).numpy()
  weights = model.get_layer("cosines").class_weights.numpy()
  lengths = np.linalg.norm(features, axis=1)[:, None]
  want = features @ weights / lengths / np.linalg.norm(weights, axis=0)
  np.testing.assert_allclose(model(images()), 7 * want, atol=1e-4)


def test_features_are_not_rectified():
  assert build(3).embed(images()).numpy().min() < 0


def test_imprinted_weights_by_hand():
  # Unit features (1, 0) and (0, 1): their mean points along (1, 1).
  got = cosine.imprint(np.array([[5.0, 0.0], [0.0, 0.1]]), norm=3.0)
  np.testing.assert_allclose(got, [3 / 2**0.5, 3 / 2**0.5], rtol=1e-6)


def test_growing_keeps_old_cosines_and_imprints_new_ones():
  old, new = build(3), build(5, fixed=3)
  old.get_layer("logits").scale.assign(4.0)
  classifiers.copy_weights(old.embed, new.embed)
  generator = np.random.default_rng(1)
  features = list(generator.normal(size=(2, 7, 16)).astype(np.float32))
  cosine.grow_cosine_head(old, new, features)
  np.testing.assert_allclose(new(images())[:, :3], old(images()), atol=1e-5)
  old_weights = old.get_layer("cosines").class_weights.numpy()
  weights = new.get_layer("cosines").class_weights.numpy()
  norm = np.linalg.norm(old_weights, axis=0).mean()
  np.testing.assert_allclose(
    np.linalg.norm(weights[:, 3:], axis=0), norm, rtol=1e-5
  )
  names = [weight.name for weight in new.trainable_weights]
  assert not any("fixed" in name for name in names)


@pytest.mark.parametrize("adapting", [False, True])
def test_saved_networks_load_without_this_package(tmp_path, adapting):
  model = build(
    5, fixed=3, conv=functools.partial(ScaledConv2D, adapting=adapting)
  )
  generator = np.random.default_rng(2)
  for weight in model.weights:
    noise = generator.uniform(0.5, 1.5, weight.shape)
    weight.assign(noise.astype(np.float32))
  classifiers.plain(model).save(tmp_path / "c.keras")
  loaded = tf.keras.models.load_model(tmp_path / "c.keras")
  assert all(
    type(layer).__module__.startswith("keras.") for layer in loaded.layers
  )
  np.testing.assert_allclose(loaded(images()), model(images()), rtol=1e-4)


def test_scaled_filters_against_a_convolution():
  x = np.random.default_rng(3).normal(size=(2, 6, 6, 3)).astype(np.float32)
  layer = ScaledConv2D(4, 3, padding="same", use_bias=False, adapting=True)
  plain = tf.keras.layers.Conv2D(4, 3, padding="same", use_bias=False)
  layer(x), plain(x)
  layer.kernel.assign(plain.kernel)
  # At first it is the convolution that it adapts.
  np.testing.assert_allclose(layer(x), plain(x), atol=1e-5)
  scale = np.random.default_rng(4).normal(size=(1, 1, 3, 4))
  layer.scale.assign(scale)
  layer.shift.assign([1.0, 2.0, 3.0, 4.0])
  plain.kernel.assign(layer.kernel * scale)
  np.testing.assert_allclose(
    layer(x), plain(x) + np.array([1.0, 2.0, 3.0, 4.0]), atol=1e-4
  )


@pytest.mark.parametrize("adapting", [False, True])
def test_either_filters_learn_or_what_adapts_them(adapting):
  layer = ScaledConv2D(4, 3, use_bias=False, adapting=adapting)
  layer.build(tf.TensorShape([None, 8, 8, 3]))
  names = {w.name.split(":")[0] for w in layer.trainable_weights}
  assert names == ({"scale", "shift"} if adapting else {"kernel"})
  assert len(layer.weights) == 3
