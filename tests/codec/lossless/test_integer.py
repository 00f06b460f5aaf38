import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec.lossless import integer
from ibdrr_tf.errors import UserError


def test_convolution_equals_integer_arithmetic():
  """Against NumPy in int64, at the largest values that can occur."""
  generator = np.random.default_rng(0)
  layer = integer.IntegerConv(5, 3)
  x = generator.integers(0, 128, (2, 4, 6, 48))
  layer(tf.constant(x, tf.float32))  # Makes the weights.
  layer.kernel.assign(generator.uniform(-2, 2, layer.kernel.shape))
  layer.bias.assign(generator.normal(size=5))
  kernel, bias = (np.rint(v.numpy()).astype(np.int64) for v in layer.integers())
  assert np.abs(kernel).max() == 127
  padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
  want = np.zeros((2, 4, 6, 5), np.int64) + bias
  for row in range(3):
    for column in range(3):
      want += (
        padded[:, row : row + 4, column : column + 6] @ kernel[row, column]
      )
  got = layer(tf.constant(x, tf.float32)).numpy()
  np.testing.assert_array_equal(got, want)
  xla = tf.function(layer, jit_compile=True)(tf.constant(x, tf.float32))
  np.testing.assert_array_equal(xla, want)


@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_give_the_same_sum_together_and_one_by_one(size):
  generator = np.random.default_rng(0)
  convs = [integer.IntegerConv(5, size) for _ in range(3)]
  inputs = [
    tf.constant(generator.integers(0, 128, (2, 4, 6, 7)), tf.float32)
    for _ in convs
  ]
  for conv in convs:
    conv.build(inputs[0].shape)
    conv.kernel.assign(generator.uniform(-2, 2, conv.kernel.shape))
    conv.bias.assign(generator.normal(size=5))
  with tf.GradientTape(persistent=True) as tape:
    want = [conv(x) for conv, x in zip(convs, inputs, strict=True)]
    total = integer.sum_of_all(convs, inputs)
    losses = [tf.reduce_sum(tf.add_n(want) ** 2), tf.reduce_sum(total**2)]
  np.testing.assert_array_equal(total, tf.add_n(want))
  for conv in convs:
    for variable in (conv.kernel, conv.bias):
      one_by_one, together = (tape.gradient(loss, variable) for loss in losses)
      np.testing.assert_allclose(together, one_by_one, rtol=1e-4)


def test_activations_round_halves_up_and_are_cut():
  total = tf.constant([-300.0, 63, 64, 191, 192, 128 * 127, 1e6])
  assert integer.activate(total).numpy().tolist() == [0, 0, 1, 1, 2, 127, 127]


def test_gradients_pass_through_rounding():
  x = tf.Variable([0.3, 0.7])
  with tf.GradientTape() as tape:
    y = tf.reduce_sum(integer.round_through(x) * [2.0, 3.0])
  assert tape.gradient(y, x).numpy().tolist() == [2.0, 3.0]


def test_sums_that_would_not_be_exact_are_refused():
  layer = integer.IntegerConv(1, 3, name="wide")
  layer(tf.zeros([1, 4, 4, 200]))
  layer.kernel.assign(tf.ones_like(layer.kernel))
  # 127 times 127 times nine places of 200 channels.
  assert layer.bound().tolist() == [127 * 127 * 9 * 200]
  with pytest.raises(UserError, match="wide can reach 29032200"):
    integer.check_exact("wide", layer.bound())
  layer.kernel.assign(0.1 * tf.ones_like(layer.kernel))
  integer.check_exact("wide", layer.bound())
  layer.bias.assign([np.nan])
  with pytest.raises(UserError, match="wide"):
    integer.check_exact("wide", layer.bound())
