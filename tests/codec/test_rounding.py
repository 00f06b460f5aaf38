"""Weights as small integers, and back."""

import numpy as np
import pytest

from ibdrr_tf.codec import rounding


@pytest.mark.parametrize("axis", [2, 3])
def test_each_output_channel_has_its_scale(axis):
  rng = np.random.default_rng(0)
  kernel = rng.normal(size=[3, 3, 5, 6]).astype(np.float32)
  sizes = 10.0 ** np.arange(-3.0, -3.0 + kernel.shape[axis])
  sizes[1] = 0.0
  kernel *= sizes[:, None] if axis == 2 else sizes
  levels, scales = rounding.quantize(kernel.astype(np.float32), axis, 63)
  restored = rounding.dequantize(levels, scales, axis)
  others = tuple(a for a in range(4) if a != axis)
  error = np.abs(restored - kernel).max(axis=others)
  peak = np.abs(kernel).max(axis=others)
  # Half a step of 63, and what the float16 scale takes from the largest.
  assert (error <= peak * (0.5 / 63 + 0.001)).all()
  assert np.abs(levels).max() == 63
  again, same = rounding.quantize(restored, axis, 63)
  np.testing.assert_array_equal(again, levels)
  np.testing.assert_array_equal(same, scales)


def test_rounding_by_hand():
  kernel = np.array([[1.0, -0.5], [0.26, 0.0]], np.float32)
  levels, scales = rounding.quantize(kernel, 1, 2)
  # Steps of 1/2 and 1/4; 0.26 is nearer to 1/2 than to 0.
  np.testing.assert_array_equal(levels, [[2, -2], [1, 0]])
  np.testing.assert_array_equal(scales / rounding.SCALE_UNIT, [0.5, 0.25])
  np.testing.assert_array_equal(
    rounding.dequantize(levels, scales, 1), [[1.0, -0.5], [0.5, 0.0]]
  )


def test_halves_stay_finite():
  assert np.isfinite(rounding.to_half(np.array([1e9, -1e9]))).all()
