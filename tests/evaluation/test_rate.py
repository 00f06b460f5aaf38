import numpy as np
import pytest

from ibdrr_tf.evaluation import rate


def test_entropy_of_known_histograms():
  assert rate.order0_entropy(np.arange(512)) == pytest.approx(9.0)
  assert rate.order0_entropy(np.zeros(100, int)) == 0.0
  # Shares 1/2, 1/4, 1/4: 1.5 bits.
  assert rate.order0_entropy(np.array([[5, 5], [7, 9]])) == pytest.approx(1.5)


def test_each_stage_has_its_own_histogram():
  # Two stages that are constant, but differ: nothing to code.
  top = np.zeros((4, 1, 1, 2), int)
  top[..., 1] = 3
  # 2x2 positions of one fair bit each: 4 bits an image.
  bottom = np.array([0, 1, 1, 0]).repeat(4).reshape(4, 2, 2, 1)
  assert rate.code_bytes(top, bottom) == pytest.approx(0.5)
