"""Decisions on the way down a tree of codes, in integers; see `code_tree`."""

from typing import NamedTuple

import tensorflow as tf

from ibdrr_tf.codec.lossless import integer, latents

__all__ = ["DecisionTable"]


class DecisionTable(NamedTuple):
  """The decisions of a codebook's tree, in integers.

  Attributes:
    weights: float32 [nodes, width].
    biases: float32 [nodes].
  """

  weights: tf.Tensor
  biases: tf.Tensor

  def log_odds(self, features: tf.Tensor, nodes: tf.Tensor) -> tf.Tensor:
    """Log-odds of decisions, in sixteenths, -127 .. 127.

    Args:
      features: [..., width].
      nodes: int32 [..., m], decisions at each position.

    Returns:
      Integers, float32 [..., m].
    """
    weights = tf.gather(self.weights, nodes)
    total = tf.reduce_sum(features[..., tf.newaxis, :] * weights, axis=-1)
    return self.to_odds(total, nodes)

  def to_odds(self, total: tf.Tensor, nodes: tf.Tensor) -> tf.Tensor:
    """The same from products of features and weights, [..., m]."""
    odds = integer.round_through(
      (total + tf.gather(self.biases, nodes)) / integer.WEIGHT_UNIT
    )
    reach = float(latents.BERNOULLI_REACH)
    return tf.clip_by_value(odds, -reach, reach)
