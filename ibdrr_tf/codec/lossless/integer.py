"""Networks of whole numbers, which give the same result on every machine.

A float network gives other bits with another library, thread count or order of
summation, and a decoder whose tables differ in one entry reads noise. Here all
weights, activations and sums are integers, held in float32. As long as every
partial sum stays below 2^24 it is exact, in whatever order it is taken.

Fixed point: an activation a stands for a / 16, a weight w for w / 128, and so
a sum for sum / 2048. The same code runs in training: variables are real, they
are rounded on the way in, and gradients pass through the rounding.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ibdrr_tf.errors import UserError

__all__ = [
  "ACTIVATION_MAX",
  "SUM_UNIT",
  "IntegerConv",
  "IntegerTable",
  "activate",
  "check_exact",
  "round_through",
  "sum_of_all",
]

ACTIVATION_UNIT = 16.0
WEIGHT_UNIT = 128.0
SUM_UNIT = ACTIVATION_UNIT * WEIGHT_UNIT
ACTIVATION_MAX = 127.0
# Every integer below it, and so every partial sum, is a float32.
_EXACT = float(1 << 24)


def round_through(x: tf.Tensor) -> tf.Tensor:
  """Rounds halves up; the gradient passes as if it did not."""
  # The difference is a float32 without rounding, and so is the sum: both are
  # multiples of the last bit of x. A custom gradient would be exported as well.
  return x + tf.stop_gradient(tf.floor(x + 0.5) - x)


def activate(total: tf.Tensor) -> tf.Tensor:
  """A sum to an activation: divided, rounded and cut to 0 .. 127."""
  scaled = round_through(total / WEIGHT_UNIT)
  return tf.clip_by_value(scaled, 0.0, ACTIVATION_MAX)


def _whole(weights: tf.Tensor, unit: float) -> tf.Tensor:
  return round_through(tf.clip_by_value(weights * unit, -127.0, 127.0))


class IntegerConv(tf.keras.layers.Layer):
  """A convolution with integer weights and zeros around the image.

  Args:
    filters: output channels.
    size: height and width of the kernel.
    gain: of the initial weights, relative to He's.
  """

  def __init__(self, filters: int, size: int, gain: float = 1.0, **kwargs):
    super().__init__(dtype=tf.float32, **kwargs)
    self.filters = filters
    self.size = size
    self.gain = gain

  def build(self, input_shape: tf.TensorShape) -> None:
    """Makes the kernel and the bias, in real units."""
    channels = input_shape[-1]
    deviation = self.gain * np.sqrt(2.0 / (self.size**2 * channels))
    self.kernel = self.add_weight(
      name="kernel",
      shape=[self.size, self.size, channels, self.filters],
      initializer=tf.keras.initializers.RandomNormal(stddev=deviation),
    )
    self.bias = self.add_weight(
      name="bias", shape=[self.filters], initializer="zeros"
    )
    super().build(input_shape)

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """Integers [n, h, w, channels] to sums [n, h, w, filters]."""
    kernel, bias = self.integers()
    return tf.nn.conv2d(inputs, kernel, 1, "SAME") + bias

  def integers(self) -> tuple[tf.Tensor, tf.Tensor]:
    """The kernel, -127 .. 127, and the bias, as whole numbers."""
    return _whole(self.kernel, WEIGHT_UNIT), round_through(self.bias * SUM_UNIT)

  def bound(self) -> np.ndarray:
    """What no sum of each filter exceeds: float64 [filters]."""
    kernel, bias = (value.numpy().astype("f8") for value in self.integers())
    return ACTIVATION_MAX * np.abs(kernel).sum(axis=(0, 1, 2)) + np.abs(bias)


def check_exact(name: str, bounds: np.ndarray) -> None:
  """Refuses sums that could leave the range in which float32 is exact.

  Args:
    name: of what is summed.
    bounds: float [n], what no such sum exceeds.
  """
  # Not a number is no bound either.
  if not np.all(bounds < _EXACT):
    raise UserError(
      f"the sums of {name} can reach {np.max(bounds):.0f}, more than float32 "
      f"holds exactly: train with fewer channels."
    )


def sum_of_all(
  convs: Sequence[IntegerConv], inputs: Sequence[tf.Tensor]
) -> tf.Tensor:
  """The sum of convolutions, each of its own input, as one of all channels."""
  kernels, biases = zip(*(conv.integers() for conv in convs), strict=True)
  total = tf.nn.conv2d(
    tf.concat(inputs, axis=-1), tf.concat(kernels, axis=2), 1, "SAME"
  )
  return total + tf.add_n(biases)


class IntegerTable(tf.keras.layers.Layer):
  """One integer vector for each of a number of symbols.

  Args:
    symbols: number of rows.
    channels: length of each.
    unit: what stands for one; rows are cut to -127 .. 127.
    deviation: of the initial values, in real units.
  """

  def __init__(
    self,
    symbols: int,
    channels: int,
    unit: float = ACTIVATION_UNIT,
    deviation: float = 1.0,
    **kwargs,
  ):
    super().__init__(dtype=tf.float32, **kwargs)
    self.unit = unit
    self.table = self.add_weight(
      name="table",
      shape=[symbols, channels],
      initializer=tf.keras.initializers.RandomNormal(stddev=deviation),
    )

  def integers(self) -> tf.Tensor:
    """All rows, as whole numbers [symbols, channels]."""
    return _whole(self.table, self.unit)

  def call(self, symbols: tf.Tensor) -> tf.Tensor:
    """Looks symbols up: int32 [...] to [..., channels]."""
    return tf.gather(self.integers(), symbols)
