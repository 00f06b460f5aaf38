"""Nearest codes, both ways of learning a codebook, and residual stages."""

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec.lossy.quantizer import (
  VectorQuantizer,
  nearest_code,
  perplexity,
)
from ibdrr_tf.errors import UserError


def features(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def trained(depth=1, steps=30, size=16, **kwargs):
  layer = VectorQuantizer(size, 4, depth, **kwargs)
  for step in range(steps):
    layer(features(8, 4, 4, 4, seed=step), training=True)
  return layer


def test_nearest_code_is_brute_force():
  vectors, codebook = features(300, 64), features(512, 64, seed=1)
  distance = ((vectors[:, None] - codebook[None]) ** 2).sum(-1)
  np.testing.assert_array_equal(
    nearest_code(vectors, codebook), distance.argmin(1)
  )


def test_nearest_code_takes_the_first_of_equals():
  codebook = np.array([[5.0, 5.0], [1.0, 0.0], [1.0, 0.0]], np.float32)
  assert nearest_code(np.float32([[1.0, 0.0]]), codebook).numpy() == [1]


def test_perplexity_counts_codes_in_use():
  counts = [[5, 5, 5, 5], [7, 0, 0, 0], [0, 0, 0, 0]]
  np.testing.assert_allclose(perplexity(counts), [4, 1, 1], rtol=1e-6)


def test_ema_step_by_hand():
  layer = VectorQuantizer(2, 1, decay=0.9, restart_below=0.0)
  layer.build(tf.TensorShape([None, None, None, 1]))
  layer.codebooks[0].assign([[0.0], [10.0]])
  layer.usage.assign([[0.5, 0.5]])
  layer.sums.assign([[[0.0], [5.0]]])
  layer.initialized.assign([True])
  layer.step.assign(10_000)  # Long past the short memory of the first steps.
  inputs = np.float32([1.0, 2.0, 3.0, 9.0]).reshape(1, 2, 2, 1)
  out = layer(inputs, training=True)
  np.testing.assert_array_equal(out.indices.numpy().ravel(), [0, 0, 0, 1])
  # usage: .9 * [.5, .5] + .1 * [3/4, 1/4]; sums: .9 * [0, 5] + .1 * [6, 9]/4.
  np.testing.assert_allclose(layer.usage[0], [0.525, 0.475], rtol=1e-5)
  np.testing.assert_allclose(layer.sums[0][:, 0], [0.15, 4.725], rtol=1e-5)
  np.testing.assert_allclose(
    layer.codebooks[0][:, 0], [0.15 / 0.525, 4.725 / 0.475], rtol=1e-4
  )
  # Equation 4 with the old codebook: (1 + 4 + 9 + 1) / 4.
  np.testing.assert_allclose(out.commitment_loss, [3.75], rtol=1e-5)


def test_first_batch_initialises_the_codebook():
  layer = VectorQuantizer(16, 4)
  inputs = features(8, 4, 4, 4) + 100.0
  out = layer(inputs, training=True)
  # Codes near zero, as before the batch, would be 100 away.
  assert out.commitment_loss.numpy().max() < 10
  assert out.perplexity.numpy() > 8
  assert layer.initialized.numpy().all()


def test_dead_codes_restart_at_inputs():
  layer = trained()
  layer.codebooks[0].assign(
    tf.tensor_scatter_nd_update(layer.codebooks[0], [[3]], [[1e3] * 4])
  )
  layer.sums.assign(tf.zeros_like(layer.sums))
  usage = layer.usage.numpy()
  usage[0, 3] = 0.0
  layer.usage.assign(usage)
  inputs = features(8, 4, 4, 4, seed=99)
  layer(inputs, training=True)
  restarted = layer.codebooks[0].numpy()[3]
  assert (np.abs(inputs.reshape(-1, 4) - restarted).sum(1) == 0).any()


def test_learning_repeats_from_seed_and_step():
  one, two = trained(), trained()
  np.testing.assert_array_equal(one.codebooks[0], two.codebooks[0])
  other = trained(seed=1)
  assert np.abs(one.codebooks[0] - other.codebooks[0]).max() > 0


@pytest.mark.parametrize("codebook", ["ema", "gradient"])
def test_gradients(codebook):
  layer = trained(codebook=codebook, steps=1)
  inputs = tf.constant(features(2, 4, 4, 4, seed=5))
  weight = tf.constant(features(2, 4, 4, 4, seed=6))
  with tf.GradientTape() as tape:
    tape.watch([inputs, layer.codebooks[0]])
    out = layer(inputs, training=True)
    loss = tf.reduce_sum(out.quantized * weight)
    loss += tf.reduce_sum(out.codebook_loss)
  to_inputs, to_codes = tape.gradient(loss, [inputs, layer.codebooks[0]])
  # Straight through: as if quantisation were the identity.
  np.testing.assert_allclose(to_inputs, weight, rtol=1e-6)
  if codebook == "ema":
    assert to_codes is None
    assert not layer.trainable_variables
  else:
    assert np.abs(tf.convert_to_tensor(to_codes)).max() > 0
    assert len(layer.trainable_variables) == 1


def test_commitment_pulls_the_encoder_towards_its_code():
  layer = trained()
  inputs = tf.constant(features(1, 2, 2, 4, seed=5))
  with tf.GradientTape() as tape:
    tape.watch(inputs)
    out = layer(inputs)
    loss = tf.reduce_sum(out.commitment_loss)
  expected = 2 * (inputs - layer.lookup(out.indices)) / 16
  np.testing.assert_allclose(
    tape.gradient(loss, inputs), expected, rtol=1e-4, atol=1e-6
  )


def test_each_residual_stage_lowers_the_error():
  inputs = features(8, 4, 4, 4, seed=99)
  errors = []
  for depth in (1, 2, 3):
    layer = trained(depth)
    out = layer(inputs)
    assert out.indices.shape == (8, 4, 4, depth)
    assert out.indices.dtype == tf.int32
    assert out.perplexity.shape == (depth,)
    np.testing.assert_allclose(
      layer.lookup(out.indices), out.quantized, atol=1e-6
    )
    errors.append(np.square(inputs - out.quantized).mean())
  assert errors[1] < 0.7 * errors[0]
  assert errors[2] < 0.7 * errors[1]


def test_deeper_quantiser_takes_over_stages():
  one, two = trained(1), VectorQuantizer(16, 4, 2)
  inputs = features(8, 4, 4, 4, seed=99)
  two(inputs)
  two.copy_stages(one)
  np.testing.assert_array_equal(two.initialized, [True, False])
  np.testing.assert_array_equal(
    two(inputs).indices[..., 0], one(inputs).indices[..., 0]
  )
  with pytest.raises(UserError, match="cannot take over 2"):
    one.copy_stages(two)


def test_users_mistakes():
  with pytest.raises(UserError, match="'ema' or 'gradient'"):
    VectorQuantizer(codebook="kmeans")
  with pytest.raises(UserError, match="at least 1"):
    VectorQuantizer(depth=0)
  with pytest.raises(UserError, match="expects 64 channels, not 3"):
    VectorQuantizer()(features(1, 2, 2, 3))


def coarsened_by_hand(books, indices, threshold):
  """The rule of `coarsen`, one place at a time."""
  result = indices.copy()
  for place in np.ndindex(indices.shape[:3]):
    is_over = False
    for stage in range(1, len(books)):
      code = books[stage][indices[place][stage]]
      is_over = is_over or np.sum(code**2) < threshold
      if is_over:
        result[place][stage] = 0
  return result


def test_blank_codes_stay_blank_while_the_others_learn():
  layer = trained(depth=3, blank=True)
  books = [book.numpy() for book in layer.codebooks]
  assert np.any(books[0][0])  # Every place has a first stage.
  for book in books[1:]:
    np.testing.assert_array_equal(book[0], 0)
    assert np.abs(book[1:]).sum(axis=1).min() > 0


def test_coarsening_leaves_out_what_changes_least():
  layer = trained(depth=3, blank=True)
  books = [book.numpy() for book in layer.codebooks]
  inputs = features(3, 5, 4, 4, seed=99)
  indices = layer(inputs).indices.numpy()
  before = np.inf
  for detail in (100, 80, 50, 20, 0):
    threshold = layer.threshold(detail)
    coarse = layer.coarsen(indices, threshold).numpy()
    np.testing.assert_array_equal(
      coarse, coarsened_by_hand(books, indices, threshold)
    )
    kept = np.count_nonzero(coarse[..., 1:])
    assert kept <= before
    before = kept
    # What training sees is what a coarser memory gives back.
    seen = layer(inputs, threshold=tf.fill([3], threshold))
    np.testing.assert_array_equal(seen.indices, coarse)
    np.testing.assert_allclose(seen.quantized, layer.lookup(coarse), atol=1e-6)
  assert kept == 0
  # Once is as good as twice: no image is needed to make codes coarser.
  some, less = layer.threshold(80), layer.threshold(30)
  np.testing.assert_array_equal(
    layer.coarsen(layer.coarsen(indices, some), less),
    layer.coarsen(indices, less),
  )


def test_thresholds_are_drawn_from_all_stages():
  layer = trained(depth=3, blank=True)
  drawn = layer.draw_threshold(np.linspace(0.001, 0.999, 999)).numpy()
  books = np.stack([book.numpy() for book in layer.codebooks])
  lengths = (books[1:] ** 2).sum(axis=2).ravel()
  finite = drawn[np.isfinite(drawn)]
  assert 0.6 < len(finite) / len(drawn) < 0.7  # One of three is infinite.
  assert np.abs(finite[:, np.newaxis] - lengths).min(axis=1).max() < 1e-5


def test_only_blank_codes_can_be_coarser():
  with pytest.raises(UserError, match=r"no blank codes.*vqvae\.blank=true"):
    trained(depth=2).coarsen(np.zeros([1, 1, 1, 2], np.int32), 1.0)
