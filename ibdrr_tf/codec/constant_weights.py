"""Weights that stay small integers in an exported graph.

A SavedModel with float32 variables would be four times as large as the stored
models. Here the weights of a layer are replaced by constants that hold the
stored integers and become float32 wherever they are used, by the very product
that opening the stored file computes. The layers do not know.
"""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec.lossless import bit_swap_file, integer
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE

__all__ = ["PackedWeight", "load_bit_swap", "load_vqvae"]


class PackedWeight:
  """Integers (or float16) times a scale; a float32 tensor to all who read it.

  Args:
    values: int8 or float16 of any shape.
    scale: float32, what to multiply them with, by broadcasting.
  """

  def __init__(self, values: np.ndarray, scale: np.ndarray | float):
    # Constants: variables would add functions that save and restore them.
    self._values = tf.constant(values)
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


def load_vqvae(data: bytes) -> HierarchicalVQVAE:
  """Opens a stored VQ-VAE with packed weights: it codes, but cannot learn."""
  model = vqvae_file.from_bytes(data)
  packed = {}
  for variable, values, scale in vqvae_file.stored_levels(model):
    packed[variable.ref()] = PackedWeight(values, scale)
  for layer in model.submodules:
    for name, value in list(vars(layer).items()):
      if isinstance(value, tf.Variable) and value.ref() in packed:
        _replace(layer, name, packed[value.ref()])
  for level in model.quantizers:
    books = [packed[book.ref()] for book in level.codebooks]
    _replace(level, "codebooks", books)
  return model


def load_bit_swap(data: bytes) -> BitSwapModel:
  """Opens a stored Bit-Swap model with packed weights; see `load_vqvae`."""
  model = bit_swap_file.from_bytes(data)
  for layer in model.integer_layers():
    # Its networks want the integers themselves, not what they stand for.
    if isinstance(layer, integer.IntegerConv):
      kernel, bias = layer.integers()
      values = kernel.numpy().astype(np.int8), bias.numpy().astype(np.int32)
    else:
      values = layer.integers().numpy().astype(np.int8)
    _replace(layer, "integers", functools.partial(_to_float, _hold(values)))
  return model


def _hold(values: np.ndarray | tuple[np.ndarray, ...]):
  """Constants of the same structure."""
  return tf.nest.map_structure(tf.constant, values)


def _to_float(constants):
  return tf.nest.map_structure(lambda c: tf.cast(c, tf.float32), constants)


def _replace(layer: tf.Module, name: str, value: object) -> None:
  # Keras would take an assignment for a new part of the model.
  vars(layer)[name] = value
