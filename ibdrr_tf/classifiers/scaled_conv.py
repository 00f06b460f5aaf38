"""Convolutions that adapt by a number for each filter."""

import numpy as np
import tensorflow as tf

__all__ = ["ScaledConv2D"]


class ScaledConv2D(tf.keras.layers.Conv2D):
  """A convolution with kernel W * scale and a shift of each output channel.

  Meta-transfer weights (Sun et al., 2019), as in Mnemonics: a scale for each
  k x k filter, that is [1, 1, in, out], which starts at 1, and a shift, [out],
  which starts at 0. Either W learns, or scale and shift do.

  Args:
    *args: of Conv2D.
    adapting: whether W is frozen, and scale and shift are learned.
    **kwargs: of Conv2D; it has no bias but the shift.
  """

  def __init__(self, *args, adapting: bool = False, **kwargs):
    super().__init__(*args, **kwargs)
    self._adapting = adapting

  def build(self, input_shape: tf.TensorShape) -> None:
    """Makes kernel, scale and shift."""
    super().build(input_shape)
    channels = int(input_shape[-1])
    self.scale = self.add_weight(
      "scale", [1, 1, channels, self.filters], initializer="ones"
    )
    self.shift = self.add_weight("shift", [self.filters], initializer="zeros")

  def add_weight(self, name: str, *args, **kwargs) -> tf.Variable:
    """Decides which of the weights learn."""
    kwargs["trainable"] = (name == "kernel") != self._adapting
    return super().add_weight(name, *args, **kwargs)

  def convolution_op(self, inputs: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
    """The convolution itself, which Conv2D calls."""
    return super().convolution_op(inputs, kernel * self.scale) + self.shift

  def plain(self) -> tf.keras.layers.Layer:
    """What it amounts to among Keras' own layers."""
    config = {**self.get_config(), "use_bias": True}
    return tf.keras.layers.Conv2D.from_config(config)

  def plain_weights(self) -> list[np.ndarray]:
    """That layer's weights."""
    return [(self.kernel * self.scale).numpy(), self.shift.numpy()]
