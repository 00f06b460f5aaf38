import hashlib

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec.lossless import latents


def mass(location, scale, z):
  """The definition, in float64."""
  b = 2 ** (scale / 4 - 1)
  upper = 1 / (1 + np.exp(-(z + 0.5 - location / 8) / b))
  lower = 1 / (1 + np.exp(-(z - 0.5 - location / 8) / b))
  return upper - lower


@pytest.mark.parametrize("fraction", [0, 3, 7])
@pytest.mark.parametrize("scale", [0, 9, 20, 31])
def test_tables_are_the_discretised_logistic(fraction, scale):
  tables = latents.make_tables()
  for first, reach in (
    (tables.posterior, tables.posterior_reach),
    (tables.prior, tables.prior_reach),
  ):
    table = tables.cumulative[first + scale * 8 + fraction]
    steps = np.diff(table)
    assert table[0] == 0 and table[-1] == 1 << 16 and steps.min() >= 1
    z = np.arange(-reach + 1, reach)  # The ends hold what lies beyond them.
    np.testing.assert_allclose(
      steps[1:-1] / 65536, mass(fraction, scale, z), atol=0.006
    )


def test_bernoulli_tables_are_sigmoids():
  tables = latents.make_tables()
  for odds in (-127, -16, 0, 1, 127):
    zero = tables.cumulative[odds + 127][1] / 65536
    assert zero == pytest.approx(1 / (1 + np.exp(odds / 16)), abs=4e-5)


def test_tables_never_change():
  """They are not stored: every machine must compute these very integers."""
  digest = hashlib.sha256()
  for table in latents.make_tables().cumulative:
    digest.update(table.astype("<i4").tobytes())
  assert digest.hexdigest()[:16] == "7631fd14e5b9bf8b"


def test_log_mass_equals_the_definition():
  location = tf.constant([[-20.0, 0, 5, 100]])
  scale = tf.constant([[4.0, 8, 12, 20]])
  z = tf.constant([[-3.0, 1, 0, 20]])
  got = latents.log2_mass(latents.Distribution(location, scale), z)
  want = np.log2(mass(location.numpy(), scale.numpy(), z.numpy()))
  np.testing.assert_allclose(got, want, rtol=1e-4)
  far = latents.log2_mass(
    latents.Distribution(tf.constant([0.0]), tf.constant([0.0])),
    tf.constant([126.0]),
  )
  assert np.isfinite(far).all()


def test_draws_follow_the_distribution():
  q = latents.Distribution(tf.fill([20_000], 21.0), tf.fill([20_000], 10.0))
  uniform = tf.random.stateless_uniform([20_000], [1, 2], 1e-6, 1 - 1e-6)
  z = latents.draw(q, uniform).numpy()
  for value in range(-2, 8):
    assert (z == value).mean() == pytest.approx(mass(21, 10, value), abs=0.01)


def test_whole_and_fraction_make_the_location():
  q = latents.to_distribution(tf.constant([[-16.0 * 13, 512 * 3]]))
  whole, table = q.bins()
  # -13 eighths: two bins down, three eighths up; three above the prior's 12.
  assert whole.numpy().tolist() == [[-2]]
  assert table.numpy().tolist() == [[15 * 8 + 3]]
