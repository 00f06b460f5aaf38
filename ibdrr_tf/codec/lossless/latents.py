"""Latents: whole numbers with logistic distributions from a fixed list.

A latent z is the number of a bin. Its distribution is a discretised logistic,

  P(z) = s((z + 1/2 - m) / b) - s((z - 1/2 - m) / b),   s the sigmoid,

whose location m is a multiple of 1/8 and whose scale b is a power of 2^(1/4).
Only the fraction of m and the scale choose a table, 8 x 32 of them; the whole
part of m merely shifts the symbols. So a network says where a latent is by an
index and an offset, both integers.

The tables are computed in decimal arithmetic, which rounds the same way on
every machine; they need not be stored.
"""

import decimal
import functools
import math
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec.lossless import integer

__all__ = [
  "BERNOULLI_REACH",
  "Distribution",
  "log2_mass",
  "make_tables",
  "prior",
  "to_activation",
  "to_distribution",
]

_FRACTIONS = 8
_SCALES = 32
# Location: at most this many bins from zero. Posterior: a draw lies at most
# this far from its location. Together they say how far a latent can be from
# the location of its prior, whose tables must reach that far.
_MOST = 63
_POSTERIOR_REACH = 63
_PRIOR_REACH = _MOST + _POSTERIOR_REACH + _MOST
# The scale of the last latent's prior: 4 bins. A draw then lies within 63 bins
# but for one in ten million; with a wider one, what the tables cut off costs
# bits. A network's zero means this scale.
_PRIOR_SCALE = 12
# Log-odds of a decision are multiples of 1/16, from -127 to 127 of them.
BERNOULLI_REACH = 127


class Distribution(NamedTuple):
  """Where latents are.

  Attributes:
    location: in eighths of a bin.
    scale: number of the scale, 0 .. 31.
  """

  location: tf.Tensor
  scale: tf.Tensor

  def bins(self) -> tuple[tf.Tensor, tf.Tensor]:
    """Whole part of the location, and the number of the table, int32."""
    location = tf.cast(self.location, tf.int32)
    whole = tf.math.floordiv(location, _FRACTIONS)
    fraction = location - whole * _FRACTIONS
    return whole, tf.cast(self.scale, tf.int32) * _FRACTIONS + fraction


def to_distribution(total: tf.Tensor) -> Distribution:
  """Reads the sums of a network's last layer, [..., 2 channels]."""
  location, scale = tf.split(total, 2, axis=-1)
  limit = float(_MOST * _FRACTIONS)
  location = integer.round_through(location / 16.0)
  scale = integer.round_through(scale / 512.0) + _PRIOR_SCALE
  return Distribution(
    tf.clip_by_value(location, -limit, limit),
    tf.clip_by_value(scale, 0.0, _SCALES - 1.0),
  )


def prior(like: tf.Tensor) -> Distribution:
  """The last latent's prior: a logistic around zero."""
  return Distribution(tf.zeros_like(like), tf.ones_like(like) * _PRIOR_SCALE)


def to_activation(latent: tf.Tensor) -> tf.Tensor:
  """Latents as what networks take: 0 .. 127, zero in the middle."""
  return tf.clip_by_value(2.0 * latent + 64.0, 0.0, integer.ACTIVATION_MAX)


def draw(distribution: Distribution, uniform: tf.Tensor) -> tf.Tensor:
  """Draws latents with uniform numbers in (0, 1); gradients pass through."""
  scale = _scale_in_bins(distribution.scale)
  noise = tf.math.log(uniform) - tf.math.log1p(-uniform)
  limit = float(_MOST + _POSTERIOR_REACH)
  latent = distribution.location / _FRACTIONS + scale * noise
  return tf.clip_by_value(integer.round_through(latent), -limit, limit)


def log2_mass(distribution: Distribution, latent: tf.Tensor) -> tf.Tensor:
  """Log2 of P(z), without the rounding of the tables."""
  scale = _scale_in_bins(distribution.scale)
  centre = latent - distribution.location / _FRACTIONS
  above, below = (centre + 0.5) / scale, (centre - 0.5) / scale
  # s(a) - s(b) = s(a) s(-b) (1 - exp(b - a)), without cancellation.
  mass = tf.math.log_sigmoid(above) + tf.math.log_sigmoid(-below)
  mass += tf.math.log1p(-tf.exp(-1.0 / scale))
  return mass / math.log(2.0)


def _scale_in_bins(scale: tf.Tensor) -> tf.Tensor:
  return tf.pow(2.0, scale / 4.0 - 1.0)


class Tables(NamedTuple):
  """All tables of the coder, as cumulative distributions, in this order.

  Attributes:
    cumulative: 255 Bernoullis, then 256 posteriors, then 256 priors.
    posterior: number of the first posterior.
    prior: number of the first prior.
    posterior_reach: symbols are offsets from minus this to this.
    prior_reach: the same for priors.
  """

  cumulative: tuple[np.ndarray, ...]
  posterior: int
  prior: int
  posterior_reach: int = _POSTERIOR_REACH
  prior_reach: int = _PRIOR_REACH


@functools.cache
def make_tables() -> Tables:
  """Computes the tables; takes a second, once a process."""
  with decimal.localcontext(decimal.Context(prec=30)):
    bernoulli = [
      _to_cumulative([_sigmoid(-decimal.Decimal(odds) / 16)])
      for odds in range(-BERNOULLI_REACH, BERNOULLI_REACH + 1)
    ]
    root = decimal.Decimal(2) ** (decimal.Decimal(1) / 4)
    latents = {}
    for reach in (_POSTERIOR_REACH, _PRIOR_REACH):
      latents[reach] = [
        _logistic(reach, fraction, root**number / 2)
        for number in range(_SCALES)
        for fraction in range(_FRACTIONS)
      ]
  cumulative = [*bernoulli, *latents[_POSTERIOR_REACH], *latents[_PRIOR_REACH]]
  return Tables(
    tuple(cumulative), len(bernoulli), len(bernoulli) + _SCALES * _FRACTIONS
  )


def _logistic(reach: int, fraction: int, scale: decimal.Decimal) -> np.ndarray:
  location = decimal.Decimal(fraction) / _FRACTIONS
  half = decimal.Decimal("0.5")
  edges = [
    _sigmoid((offset + half - location) / scale)
    for offset in range(-reach, reach)
  ]
  return _to_cumulative(edges)


def _sigmoid(x: decimal.Decimal) -> decimal.Decimal:
  if abs(x) > 60:  # Beyond what 16 bits can tell from 0 and 1.
    return decimal.Decimal(int(x > 0))
  return 1 / (1 + (-x).exp())


def _to_cumulative(inner: list[decimal.Decimal]) -> np.ndarray:
  """Integers from 0 to 65536 with at least one for each symbol."""
  symbols = len(inner) + 1
  free = (1 << 16) - symbols
  middle = [int(share * free) + k + 1 for k, share in enumerate(inner)]
  return np.array([0, *middle, 1 << 16], np.int32)
