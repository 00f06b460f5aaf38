import sys

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.random_seed import set_random_seed


def kernels():
  """Of two layers, which draw two seeds."""
  layers = [tf.keras.layers.Dense(3) for _ in range(2)]
  for layer in layers:
    layer.build((None, 4))
  return np.array([layer.get_weights()[0] for layer in layers])


def test_a_seed_decides_first_weights():
  set_random_seed(7)
  first = kernels()
  set_random_seed(7)
  np.testing.assert_array_equal(kernels(), first)
  assert (first[0] != first[1]).all()
  set_random_seed(8)
  assert (kernels() != first).all()


@pytest.mark.skipif(
  sys.version_info >= (3, 12), reason="Keras' own fails there"
)
def test_seeds_are_those_of_keras():
  set_random_seed(7)
  ours = kernels()
  tf.keras.utils.set_random_seed(7)  # noqa: TID251
  np.testing.assert_array_equal(kernels(), ours)
