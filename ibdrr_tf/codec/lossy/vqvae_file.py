"""Compact storage of a VQ-VAE: a fifth of its float32 size.

Who reads codes needs the decoder, so its bytes count in the ledger. Kernels are
stored as small integers with one scale for each output channel, codebooks with
one for each dimension, biases as float16. The integers crowd around zero, and
Huffman codes (deflate) take off what that leaves.

Lifecycle: train, `round_weights` once, then encode, decode, export and store
the rounded model; `from_bytes(to_bytes(model))` has exactly its weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import model_file, rounding
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE

__all__ = ["from_bytes", "round_weights", "stored_levels", "to_bytes"]

_MAGIC = b"IBVQ"
# 2: no top level, blank codes, or fewer levels; who has none of that is still
# written as 1.
_VERSION = 2
# The largest integers. Measured on a model of 25.83 dB trained on CIFAR-100:
# kernels at 127 / 63 / 31 lose 0.008 / 0.034 / 0.125 dB, and each halving saves
# one bit a weight. Codebooks at 127 lose less than 0.001 dB.
_KERNEL_LEVELS = 63
_CODEBOOK_LEVELS = 127
# What a stored configuration may say.
_RANGES = {
  "codebook_size": range(1, 1 << 15),
  "embedding": range(1, 1 << 12),
  "channels": range(1, 1 << 12),
  "residual_blocks": range(256),
  "residual_channels": range(1, 1 << 12),
  "top_depth": range(256),
  "bottom_depth": range(1, 64),
  "commitment": float,
  "codebook": ("ema", "gradient"),
  "layout": ("paper", "subpixel"),
  "seed": model_file.SEEDS,
  "blank": (False, True),
  "kernel_levels": range(128),
}
# What the sizes of the largest weights follow from.
_SHAPE = tuple(_RANGES)[:7]


def stored_levels(
  model: HierarchicalVQVAE,
) -> list[tuple[tf.Variable, np.ndarray, np.ndarray]]:
  """What is stored of each weight, as integers and their scales.

  Args:
    model: a rounded one.

  Returns:
    For each variable, its values (int8; float16 for a bias) and the float32
    scale that they are to be multiplied with, by broadcasting. The product is
    exactly the variable.
  """
  result = []
  for variable, axis in model.stored_variables():
    value = variable.numpy()
    if axis is None:
      result.append((variable, rounding.to_half(value), np.float32(1.0)))
      continue
    levels, scales = _quantize(value, axis, model)
    step = rounding.step(scales, axis, value.ndim)
    result.append((variable, levels, step))
  return result


def _quantize(
  values: np.ndarray, axis: int, model: HierarchicalVQVAE
) -> tuple[np.ndarray, np.ndarray]:
  """A kernel (4 axes) or a codebook (2 axes) as integers and scales."""
  most = _CODEBOOK_LEVELS
  if values.ndim == 4:
    most = model.get_config().get("kernel_levels", _KERNEL_LEVELS)
  return rounding.quantize(values, axis, most)


def round_weights(model: HierarchicalVQVAE) -> None:
  """Replaces all weights by what `to_bytes` stores of them."""
  for variable, axis in model.stored_variables():
    value = variable.numpy()
    if axis is None:
      variable.assign(rounding.to_half(value).astype(np.float32))
    else:
      rounded = _quantize(value, axis, model)
      variable.assign(rounding.dequantize(*rounded, axis))
  _settle(model)


def _settle(model):
  """Lets the quantisers' statistics agree with the new codebooks."""
  for level in model.quantizers:
    level.adopt([book.numpy() for book in level.codebooks])


def to_bytes(model: HierarchicalVQVAE) -> bytes:
  """The stored form of a model, rounded or not: the bytes are the same."""
  arrays = []
  for variable, axis in model.stored_variables():
    if axis is None:
      arrays.append(rounding.to_half(variable.numpy()))
    else:
      levels, scales = _quantize(variable.numpy(), axis, model)
      arrays += [levels, scales.astype("<f2")]
  config = model.get_config()
  is_new = not config["top_depth"] or {"blank", "kernel_levels"} & set(config)
  version = _VERSION if is_new else _VERSION - 1
  return model_file.pack(_MAGIC, version, {"config": config}, arrays)


def from_bytes(data: bytes) -> HierarchicalVQVAE:
  """The model that `to_bytes` stored, with its rounded weights.

  Raises:
    UserError: if the data are not a VQ-VAE, damaged, or of a newer version.
  """
  header, body = model_file.unpack(data, _MAGIC, _VERSION, "VQ-VAE")
  config = model_file.check_config(header.get("config"), _RANGES, body, _SHAPE)
  body.check_holds(_least_bytes(config))
  model = HierarchicalVQVAE(**config)
  for variable, axis in model.stored_variables():
    shape = variable.shape.as_list()
    if axis is None:
      variable.assign(body.take(shape, "<f2").astype(np.float32))
    else:
      levels = body.take(shape, np.int8)
      scales = body.take([shape[axis]], "<f2")
      if (scales < 0).any():
        raise body.forged("it has negative scales")
      variable.assign(rounding.dequantize(levels, scales, axis))
  body.check_end()
  _settle(model)
  return model


def _least_bytes(config: dict[str, Any]) -> int:
  """Bytes of the largest weights of a model, which need not be made for it."""
  size, embedding, channels, blocks, inner, top, bottom = (
    config[word] for word in _SHAPE
  )
  books = size * embedding * (top + bottom)
  # One 3x3 and one 1x1 kernel in each block of two stacks.
  stacks = 2 * blocks * 10 * channels * inner
  return books + stacks + 9 * channels * (channels + embedding)
