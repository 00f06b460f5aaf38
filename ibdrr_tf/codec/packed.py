"""Weights that stay small integers in an exported graph.

A SavedModel with float32 variables would be four times as large as the stored
models. Here a layer's variable is replaced by a *packed* weight, which holds
the stored integers and becomes float32 wherever it is used, by the very product
that opening the stored file computes. The layers do not know.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import bit_swap_file, integer, weights
from ibdrr_tf.codec.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.vqvae import HierarchicalVQVAE

__all__ = ["PackedWeight", "load_bit_swap", "load_vqvae"]


class PackedWeight(tf.Module):
  """Integers (or float16) times a scale; a float32 tensor to all who read it.

  Args:
    values: int8, int32 or float16 of any shape.
    scale: float32, what to multiply them with, by broadcasting.
  """

  def __init__(self, values: np.ndarray, scale: np.ndarray | float):
    super().__init__()
    self._values = tf.Variable(values, trainable=False)
    self._scale = tf.constant(scale, tf.float32)

  @property
  def shape(self) -> tf.TensorShape:
    """Of the weight."""
    return self._values.shape

  @property
  def dtype(self) -> tf.DType:
    """What it is read as."""
    return tf.float32

  def __tf_tensor__(self, dtype=None, name=None) -> tf.Tensor:
    del dtype, name
    return tf.cast(self._values, tf.float32) * self._scale

  def __mul__(self, other: float) -> tf.Tensor:
    return tf.convert_to_tensor(self) * other


def load_vqvae(data: bytes) -> tuple[HierarchicalVQVAE, list[PackedWeight]]:
  """Opens a stored VQ-VAE with packed weights: it encodes, but cannot learn.

  Returns:
    The model, and the weights that its graphs refer to.
  """
  model = weights.from_bytes(data)
  packed = {}
  for variable, values, scale in weights.stored_levels(model):
    packed[variable.ref()] = PackedWeight(values, scale)
  for layer in model.submodules:
    for name, value in list(vars(layer).items()):
      if isinstance(value, tf.Variable) and value.ref() in packed:
        _replace(layer, name, packed[value.ref()])
  for level in model.quantizers:
    books = [packed[book.ref()] for book in level.codebooks]
    _replace(level, "codebooks", books)
  return model, list(packed.values())


def load_bit_swap(data: bytes) -> tuple[BitSwapModel, list[PackedWeight]]:
  """Opens a stored Bit-Swap model with packed weights; see `load_vqvae`."""
  model = bit_swap_file.from_bytes(data)
  packed = []
  for layer in model.integer_layers():
    if isinstance(layer, integer.IntegerConv):
      kernel, bias = layer.integers()
      parts = {
        "kernel": (kernel, np.int8, integer.WEIGHT_UNIT),
        "bias": (bias, np.int32, integer.SUM_UNIT),
      }
    else:
      parts = {"table": (layer.integers(), np.int8, layer.unit)}
    for name, (value, dtype, unit) in parts.items():
      # Units are powers of two: the quotient is exact, and so the integers.
      packed.append(PackedWeight(value.numpy().astype(dtype), 1.0 / unit))
      _replace(layer, name, packed[-1])
  return model, packed


def _replace(layer: tf.Module, name: str, value: object) -> None:
  # Keras would take an assignment for a new part of the model.
  vars(layer)[name] = value
