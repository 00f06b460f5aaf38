"""Steps of training that look at the gradients of single parts of a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import losses

__all__ = ["Update", "flat", "update_by_parts"]

# Moves the weights: gets the gradient of each part of the loss by name, float32
# [weights], and a function that takes one step of the optimiser along such a
# vector.
Update = Callable[
  [dict[str, tf.Tensor], Callable[[tf.Tensor], None]],
  None,
]


def flat(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  """All numbers of some tensors or variables as one vector, float32 [n]."""
  return tf.concat(
    [tf.reshape(tf.cast(x, tf.float32), [-1]) for x in tensors], axis=0
  )


def update_by_parts(
  model: tf.keras.Model,
  tape: tf.GradientTape,
  parts: dict[str, tf.Tensor],
  update: Update,
) -> None:
  """Lets `update` move the weights of a model, on one replica or on several.

  What it does with gradients need not be linear, so they are summed over
  replicas first, and every replica takes the same step.

  Args:
    model: compiled; its trainable variables are moved.
    tape: persistent, has seen the parts.
    parts: of the loss, by name; averaged over replicas they are the loss.
    update: see `Update`.
  """
  variables, optimizer = model.trainable_variables, model.optimizer
  # Small gradients of float16 networks are lost unless the loss is scaled.
  scale = tf.cast(getattr(optimizer, "loss_scale", 1.0), tf.float32)
  replicas = tf.distribute.get_strategy().num_replicas_in_sync

  def gradient(part: tf.Tensor) -> tf.Tensor:
    slopes = tape.gradient(
      part,
      variables,
      output_gradients=scale / replicas,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return flat(slopes) / scale

  stacked = losses.over_replicas(
    tf.distribute.ReduceOp.SUM,
    tf.stack([gradient(part) for part in parts.values()]),
  )

  def apply(vector: tf.Tensor) -> None:
    pairs = zip(_split(vector, variables), variables, strict=True)
    optimizer.apply_gradients(pairs, skip_gradients_aggregation=True)

  update(dict(zip(parts, tf.unstack(stacked), strict=True)), apply)


def _split(vector: tf.Tensor, variables: Sequence[Any]) -> list[tf.Tensor]:
  """Undoes `flat`."""
  sizes = [int(np.prod(variable.shape)) for variable in variables]
  pieces = tf.split(vector, sizes)
  return [
    tf.reshape(piece, variable.shape)
    for piece, variable in zip(pieces, variables, strict=True)
  ]
