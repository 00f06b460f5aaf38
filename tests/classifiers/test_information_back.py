"""Information Back against what its equation says."""

from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.classifiers import batch_norm
from ibdrr_tf.classifiers.classifier import build_classifier
from ibdrr_tf.classifiers.information_back import (
  ReplayClassifier,
  similarity_loss,
)
from ibdrr_tf.random_seed import set_random_seed

SHAPE = (8, 8, 3)


class Batch(NamedTuple):
  images: np.ndarray
  raw: np.ndarray | None
  has_raw: np.ndarray | None


def make(batch, learning_rate=0.1, weight=0.0, **options):
  set_random_seed(0)
  classifier = build_classifier(
    backbone="resnet8",
    width=2,
    image_shape=SHAPE,
    classes=3,
    kind=ReplayClassifier,
  )
  classifier.compile(
    tf.keras.optimizers.SGD(learning_rate),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
    prepare=lambda _: Batch(*map(tf.constant, batch)),
  )
  if weight:
    classifier.look_back(weight, **options)
  return classifier


def step(classifier):
  data = tf.data.Dataset.from_tensors((np.zeros(4), np.array([0, 1, 2, 0])))
  return classifier.fit(data, verbose=0).history


@pytest.fixture(scope="module")
def batch():
  generator = np.random.default_rng(0)
  images, raw = generator.integers(0, 256, (2, 4, *SHAPE)).astype(np.uint8)
  return Batch(images, raw, np.array([True, False, True, False]))


def test_similarity_by_hand():
  raw = tf.constant([[3.0, 4.0], [1.0, 0.0], [1.0, 1.0]])
  replayed = tf.constant([[6.0, 8.0], [0.0, 5.0], [-2.0, -2.0]])
  np.testing.assert_allclose(
    similarity_loss(raw, replayed), [-1, 0, 1], atol=1e-6
  )
  maps = tf.reshape(raw[:1], [1, 2, 1, 1])
  np.testing.assert_allclose(similarity_loss(maps, maps), [-1], atol=1e-6)


def test_no_gradient_reaches_the_raw_side():
  raw, replayed = tf.Variable([[1.0, 2.0]]), tf.Variable([[2.0, 1.0]])
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(similarity_loss(raw, replayed))
  to_raw, to_replayed = tape.gradient(loss, [raw, replayed])
  assert to_raw is None
  # d(-cos)/dr2 = -(r1/|r1| - cos * r2/|r2|) / |r2|, by hand.
  want = -(np.array([1, 2]) - 0.8 * np.array([2, 1])) / 5
  np.testing.assert_allclose(to_replayed[0], want, atol=1e-6)


@pytest.mark.parametrize("mode", ["batch", "moving"])
def test_a_step_is_that_of_the_equation(batch, mode):
  """Weights after a step of plain SGD, against autodiff written here."""
  weight, rate = 3.0, 0.1
  stepped = make(batch, rate, weight=weight, batch_norm=mode)
  twin = make(batch)
  features = twin.embed
  r1 = features(batch.raw[[0, 2]], training=mode == "batch")
  twin = make(batch)  # Afresh: that call moved the averages.
  features = twin.embed
  with tf.GradientTape() as tape:
    r2 = features(batch.images, training=True)
    logits = twin.get_layer("logits")(r2)
    log_p = tf.nn.log_softmax(logits).numpy()[range(4), [0, 1, 2, 0]]
    entropy = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits([0, 1, 2, 0], logits)
    )
    a, b = (tf.math.l2_normalize(r, 1) for r in (r1, tf.gather(r2, [0, 2])))
    loss = entropy - weight * tf.reduce_mean(tf.reduce_sum(a * b, 1))
  gradients = tape.gradient(loss, twin.trainable_variables)
  history = step(stepped)
  for variable, old, gradient in zip(
    stepped.trainable_variables,
    twin.trainable_variables,
    gradients,
    strict=True,
  ):
    np.testing.assert_allclose(
      variable, old - rate * gradient, rtol=1e-4, atol=1e-5
    )
  np.testing.assert_allclose(history["loss"], -log_p.mean(), rtol=1e-5)
  cosine = -np.sum(a * b, axis=1).mean()
  np.testing.assert_allclose(history["ib_loss"], cosine, rtol=1e-5)
  # The raw images left no trace in the averages.
  for got, want in zip(
    batch_norm.averages_of(stepped), batch_norm.averages_of(twin), strict=True
  ):
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_update_lets_raw_images_move_the_averages(batch):
  with_raw = make(batch, weight=1.0, batch_norm="update")
  without = make(batch, weight=0.0)
  for classifier in (with_raw, without):
    step(classifier)
  averages = [
    batch_norm.averages_of(classifier)[0].numpy()
    for classifier in (with_raw, without)
  ]
  assert not np.allclose(*averages)


def test_without_any_twin_the_term_is_nothing(batch):
  """Also where the raw images differ: they must not be looked at."""
  nobody = np.zeros(4, bool)
  results = []
  for raw in (batch.raw, np.zeros_like(batch.raw)):
    classifier = make(
      Batch(batch.images, raw, nobody), weight=9.0, batch_norm="update"
    )
    step(classifier)
    results.append(classifier.get_weights())
  plain = make(Batch(batch.images, batch.raw, nobody), weight=0.0)
  step(plain)
  for one, other, want in zip(*results, plain.get_weights(), strict=True):
    np.testing.assert_array_equal(one, other)
    assert np.isfinite(one).all()
    assert one.shape == want.shape
  for one, want in zip(
    classifier.trainable_variables, plain.trainable_variables, strict=True
  ):
    np.testing.assert_allclose(one, want, atol=1e-6)


def test_an_earlier_feature_can_be_compared(batch):
  """L_sim is that of the named layer's outputs, worked out here."""
  found = {}
  for feature in ("stage_1", "features"):
    view = make(batch).up_to(feature)
    r1 = view(batch.raw[[0, 2]], training=False)
    r2 = tf.gather(view(batch.images, training=True), [0, 2])
    a, b = (tf.reshape(r, [2, -1]).numpy() for r in (r1, r2))
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    want = -np.mean((a * b).sum(axis=1) / norms)
    classifier = make(batch, weight=1.0, feature=feature)
    found[feature] = step(classifier)["ib_loss"][0]
    np.testing.assert_allclose(found[feature], want, rtol=1e-5)
  assert abs(found["stage_1"] - found["features"]) > 1e-3
