import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers


def build(**options):
  settings = {
    "backbone": "resnet18",
    "width": 4,
    "image_shape": (16, 16, 3),
    "classes": 5,
  }
  return classifiers.build_classifier(**(settings | options))


def images(count=6, size=16):
  generator = np.random.default_rng(0)
  return generator.integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def parameters(model):
  return sum(int(np.prod(w.shape)) for w in model.trainable_weights)


@pytest.mark.parametrize(
  ("backbone", "width", "classes", "published"),
  [
    # The numbers that the well-known PyTorch versions print.
    ("resnet18", 64, 100, 11_220_132),
    ("resnet32", 16, 10, 466_906),
    ("resnet8", 16, 10, 78_042),  # By hand.
  ],
)
def test_parameter_counts(backbone, width, classes, published):
  model = build(
    backbone=backbone, width=width, classes=classes, image_shape=(32, 32, 3)
  )
  assert parameters(model) == published


def test_features_and_logits():
  model = build()
  features = model.embed(images())
  assert features.shape == (6, 32) and model.classes == 5
  kernel, bias = model.get_layer("logits").get_weights()
  np.testing.assert_allclose(
    model(images()), features.numpy() @ kernel + bias, atol=1e-4
  )


def test_any_image_size_in_one_architecture():
  assert parameters(build(image_shape=(64, 48, 3))) == parameters(build())


def test_growing_keeps_old_logits_exactly():
  old, new = build(classes=3), build(classes=5)
  classifiers.grow_head(old, new)
  np.testing.assert_allclose(new(images())[:, :3], old(images()), atol=1e-6)


def test_saved_classifier_loads_without_custom_objects(tmp_path):
  model = build()
  classifiers.plain(model).save(tmp_path / "c.keras")
  loaded = tf.keras.models.load_model(tmp_path / "c.keras")
  np.testing.assert_allclose(loaded(images()), model(images()), atol=1e-6)


_USE = """
import sys
sys.modules["ibdrr_tf"] = None  # Importing it would fail.
import numpy as np
import tensorflow as tf
model = tf.keras.models.load_model(sys.argv[1])
files = np.load(sys.argv[2])
images = files["images"]
for given in (images, images.astype(np.float32), tf.constant(images)):
  np.testing.assert_allclose(model(given), files["logits"], atol=1e-6)
logits = model.predict(images, verbose=0)
np.testing.assert_allclose(logits, files["logits"], atol=1e-6)
for bad in (
  images / 255,
  (images / 255).astype(np.float32),
  images - 128.0,
  images + 1000.0,
  np.where(images > 3, images, np.nan),
):
  for call in (model, lambda x: model.predict(x, verbose=0)):
    try:
      call(bad)
    except tf.errors.InvalidArgumentError as error:
      assert "give uint8" in str(error), error
    else:
      raise AssertionError("taken")
"""


def test_saved_classifier_takes_only_bytes(tmp_path):
  """Keras casts: images in [0, 1] were classified as black ones."""
  model = build()
  classifiers.plain(model).save(tmp_path / "c.keras")
  np.savez(tmp_path / "c.npz", images=images(), logits=model(images()))
  result = subprocess.run(
    [
      *(sys.executable, "-c", _USE),
      *(str(tmp_path / name) for name in ("c.keras", "c.npz")),
    ],
    capture_output=True,
    text=True,
    check=False,
    cwd=tmp_path,
    env={"TF_CPP_MIN_LOG_LEVEL": "3", "PATH": "/usr/bin:/bin"},
  )
  assert result.returncode == 0, result.stderr


def test_plain_classifier_shows_its_layers():
  model = build()
  copy = classifiers.plain(model)
  names = {layer.name for layer in copy.layers}
  assert names >= {layer.name for layer in model.layers}
  assert parameters(copy) == parameters(model)
  assert copy.count_params() == model.count_params()
  assert copy.output_shape == model.output_shape


@pytest.mark.parametrize(("size", "width"), [(64, 8), (64, 4), (33, 2)])
def test_narrow_networks_survive_a_training_step(size, width):
  """With strided 1x1 convolutions this crashed the process (oneDNN)."""
  model = build(width=width, image_shape=(size, size, 3))
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile("sgd", loss)
  labels = np.arange(8) % 5
  for _ in range(3):
    model.train_on_batch(images(8, size), labels)
  assert np.isfinite(model.predict(images(2, size), verbose=0)).all()


def test_shortcuts_look_at_every_second_pixel():
  """As a 1x1 convolution of stride 2 does, on odd sizes too."""
  x = np.random.default_rng(0).normal(size=(1, 5, 7, 3)).astype(np.float32)
  kernel = tf.reshape(tf.eye(3), [1, 1, 3, 3])
  np.testing.assert_array_equal(
    tf.keras.layers.MaxPool2D(1, 2)(x), tf.nn.conv2d(x, kernel, 2, "SAME")
  )


def test_bfloat16_is_chosen_for_blocks_of_channels_alone(monkeypatch):
  """oneDNN's bfloat16 convolutions are slow for other widths."""
  text = "flags : avx512f avx512_bf16\n"
  monkeypatch.setattr(pathlib.Path, "read_text", lambda *_, **__: text)
  monkeypatch.setattr(tf.config, "list_physical_devices", lambda *_: [])
  assert classifiers.fastest_precision(16) == "bfloat16"
  assert classifiers.fastest_precision(64) == "bfloat16"
  for width in (8, 12, 24):
    assert classifiers.fastest_precision(width) == "float32"
  text = "flags : avx512f\n"
  assert classifiers.fastest_precision(16) == "float32"
