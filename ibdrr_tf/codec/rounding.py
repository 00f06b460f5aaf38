"""Weights as small integers, as stored models of the lossy stage hold them.

Each output channel of a kernel, and each dimension of a codebook, has its own
scale, a float16 number; the weights are integers times that scale. Rounding a
weight that has been rounded before changes nothing.
"""

import numpy as np

__all__ = ["SCALE_UNIT", "dequantize", "quantize", "step", "to_half"]

# Scales of 1e-7 .. 64 are normal float16 numbers once multiplied by this, and
# only then is a scale that has been rounded once not rounded again.
SCALE_UNIT = 1024.0
_SMALLEST = float(np.finfo(np.float16).tiny)


def quantize(
  values: np.ndarray, axis: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
  """Weights to small integers.

  Args:
    values: float32 of any shape.
    axis: along which each slice has its own scale.
    most: the largest integer, at most 127.

  Returns:
    int8 of the same shape, and the scales, float16 `[values.shape[axis]]`.
  """
  others = tuple(a for a in range(values.ndim) if a != axis)
  peak = np.abs(values).max(axis=others).astype(np.float64)
  scales = (peak / most * SCALE_UNIT).astype(np.float16)
  scales[scales < _SMALLEST] = 0.0
  unit = np.expand_dims(scales.astype(np.float64) / SCALE_UNIT, others)
  levels = np.divide(values, unit, out=np.zeros(values.shape), where=unit > 0)
  return np.clip(np.rint(levels), -most, most).astype(np.int8), scales


def dequantize(levels: np.ndarray, scales: np.ndarray, axis: int) -> np.ndarray:
  """The inverse of `quantize`, float32, the same on every machine."""
  return levels.astype(np.float32) * step(scales, axis, levels.ndim)


def step(scales: np.ndarray, axis: int, rank: int) -> np.ndarray:
  """Scales, float16, as float32 that broadcast along the other axes."""
  others = tuple(a for a in range(rank) if a != axis)
  return np.expand_dims(scales.astype(np.float32) / SCALE_UNIT, others)


def to_half(values: np.ndarray) -> np.ndarray:
  """Biases to float16; too large ones to the largest, not to infinity."""
  limit = np.finfo(np.float16).max
  return np.clip(values, -limit, limit).astype("<f2")
