"""Half precision inside the backbone, and nowhere else."""

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf import training
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers.cosine import cosine_head
from ibdrr_tf.classifiers.information_back import ReplayClassifier
from ibdrr_tf.classifiers.optimizer import L2SGD
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay.feeds import Prepared


def build(precision, **options):
  set_random_seed(0)
  return classifiers.build_classifier(
    backbone="resnet8",
    width=4,
    image_shape=(16, 16, 3),
    classes=3,
    precision=precision,
    **options,
  )


def images(count=8, seed=0):
  generator = np.random.default_rng(seed)
  return generator.integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


@pytest.mark.parametrize("head", [classifiers.linear_head, cosine_head])
def test_weights_features_and_logits_are_single_precision(head):
  model = build("float16", head=head)
  assert {weight.dtype for weight in model.weights} == {tf.float32}
  assert model.get_layer("stage_0").output.dtype == tf.float16
  for name in ("features", "logits"):
    assert model.get_layer(name).output.dtype == tf.float32
  # What is built afterwards, such as a codec, is not concerned.
  codec = HierarchicalVQVAE(
    codebook_size=4, embedding=2, channels=4, residual_channels=2
  )
  assert codec(images(1)).dtype == tf.float32
  assert codec.encode_bottom.compute_dtype == "float32"


def test_the_plain_copy_is_all_single_precision_and_says_the_same(tmp_path):
  model = build("float16")
  classifiers.plain(model).save(tmp_path / "c.keras")
  loaded = tf.keras.models.load_model(tmp_path / "c.keras")
  assert {layer.compute_dtype for layer in loaded.layers[1:]} == {"float32"}
  logits = model(images()).numpy()
  np.testing.assert_allclose(loaded(images()), logits, atol=0.02)
  assert np.abs(logits).max() > 0.2


def train(precision, folder):
  """A few steps with Information Back; gives the history."""
  model = build(precision, kind=ReplayClassifier)
  model.compile(
    L2SGD(0.02, momentum=0.9, l2=5e-4, jit_compile=False),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    prepare=lambda inputs: Prepared(
      inputs, tf.constant(images(seed=1)), tf.range(8) < 5
    ),
  )
  model.look_back(0.5, "stage_2")
  batch = (images(), np.arange(8) % 3)
  job = training.Fit(
    epochs=2,
    steps_per_epoch=8,
    batches=lambda epochs, share: tf.data.Dataset.from_tensors(batch).repeat(),
    checkpoints=folder / "checkpoints",
    tensorboard=folder / "tensorboard",
    title="a test",
  )
  training.fit(model, job)
  return model.history.history, model


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_it_learns_what_single_precision_learns(precision, tmp_path):
  mixed, model = train(precision, tmp_path / "mixed")
  single, _ = train("float32", tmp_path / "single")
  assert model.get_layer("stage_0").output.dtype == precision
  # Only float16 has so few small numbers that gradients would be lost.
  assert (precision == "float16") == isinstance(
    model.optimizer, tf.keras.mixed_precision.LossScaleOptimizer
  )
  np.testing.assert_allclose(mixed["loss"], single["loss"], rtol=0.1)
  assert mixed["loss"][1] < 0.8 * mixed["loss"][0]
  assert -1 <= mixed["ib_loss"][1] < 0
