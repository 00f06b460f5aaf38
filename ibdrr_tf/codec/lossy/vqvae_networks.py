"""The convolutional parts of the VQ-VAE, in two layouts."""

from __future__ import annotations

import tensorflow as tf

from ibdrr_tf.codec.rounding import SCALE_UNIT

__all__ = ["DepthToSpace", "Networks", "RoundedConv2D", "SpaceToDepth", "apply"]

layers = tf.keras.layers


def apply(conv: layers.Layer, inputs: tf.Tensor, training: bool) -> tf.Tensor:
  """Calls a convolution, which may round its kernel in training."""
  if isinstance(conv, RoundedConv2D):
    return conv(inputs, training=training)
  return conv(inputs)


class _ResidualBlock(layers.Layer):
  """x + 1x1(relu(3x3(relu(x)))), narrow inside."""

  def __init__(self, channels, residual_channels, conv, **kwargs):
    super().__init__(**kwargs)
    self.narrow = conv(residual_channels, 3)
    self.widen = conv(channels, 1)

  def call(self, inputs, training=False):
    hidden = apply(self.narrow, tf.nn.relu(inputs), training)
    return inputs + apply(self.widen, tf.nn.relu(hidden), training)


class RoundedConv2D(layers.Conv2D):
  """A convolution whose kernel is rounded in training as it will be stored.

  The gradient passes the rounding. Outside training the kernel is used as it
  is: a stored model's has been rounded once and for all.

  Args:
    levels: the largest integer that a weight is stored as.
    **kwargs: of `Conv2D`.
  """

  def __init__(self, *args, levels: int, **kwargs):
    super().__init__(*args, **kwargs)
    self.levels = levels

  def call(self, inputs: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Convolves `[n, h, w, channels]`."""
    if not training:
      return super().call(inputs)
    peak = tf.stop_gradient(tf.reduce_max(tf.abs(self.kernel), axis=[0, 1, 2]))
    scale = tf.cast(peak / self.levels * SCALE_UNIT, tf.float16)
    step = tf.maximum(tf.cast(scale, tf.float32) / SCALE_UNIT, 1e-7)
    rounded = tf.round(self.kernel / step) * step
    kernel = self.kernel + tf.stop_gradient(rounded - self.kernel)
    result = tf.nn.conv2d(
      inputs, tf.cast(kernel, inputs.dtype), self.strides, "SAME"
    )
    return result + tf.cast(self.bias, inputs.dtype)


class SpaceToDepth(layers.Layer):
  """Blocks of pixels become channels; free, and so is its gradient."""

  def __init__(self, block, **kwargs):
    super().__init__(**kwargs)
    self.block = block

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """`[n, h, w, c]` to `[n, h / block, w / block, block^2 c]`."""
    return tf.nn.space_to_depth(inputs, self.block)


class DepthToSpace(SpaceToDepth):
  """Channels become blocks of pixels: sub-pixel convolution's second half."""

  def call(self, inputs: tf.Tensor) -> tf.Tensor:
    """The inverse."""
    return tf.nn.depth_to_space(inputs, self.block)


class Networks:
  """Builds the layers of one model, each with its own initial seed.

  Two layouts share the residual stacks and the sizes of everything coded:
  "paper" halves and doubles the resolution with 4x4 convolutions of stride 2,
  as VQ-VAE-2 does; "subpixel" moves pixels into channels and back, so that all
  convolutions run at 1/4 or 1/8 of the resolution.
  """

  def __init__(self, config):
    self.config = config
    self.seed = 1000 * config["seed"]

  def _kernel(self, relu=True):
    self.seed += 1
    return tf.keras.initializers.VarianceScaling(
      2.0 if relu else 1.0, "fan_in", "untruncated_normal", seed=self.seed
    )

  def conv(self, channels, size, strides=1, relu=True):
    """A convolution; `relu` says whether one follows, for its scale."""
    options = {"padding": "same", "kernel_initializer": self._kernel(relu)}
    levels = self.config.get("kernel_levels")
    if levels:
      return RoundedConv2D(channels, size, strides, levels=levels, **options)
    return layers.Conv2D(channels, size, strides, **options)

  def transposed(self, channels):
    """A 4x4 convolution that doubles the resolution."""
    return layers.Conv2DTranspose(
      channels, 4, 2, padding="same", kernel_initializer=self._kernel()
    )

  def stack(self):
    """Residual blocks and a last ReLU."""
    config = self.config
    blocks = [
      _ResidualBlock(config["channels"], config["residual_channels"], self.conv)
      for _ in range(config["residual_blocks"])
    ]
    return [*blocks, layers.ReLU()]

  def encode_bottom(self):
    """Images [n, h, w, 3] to features on 1/4 of the resolution."""
    channels = self.config["channels"]
    if self.config["layout"] == "paper":
      entry = [
        self.conv(channels // 2, 4, 2),
        layers.ReLU(),
        self.conv(channels, 4, 2),
      ]
    else:
      entry = [SpaceToDepth(4), self.conv(channels, 3)]
    entry += [layers.ReLU(), self.conv(channels, 3)]
    return tf.keras.Sequential(entry + self.stack(), name="encode_bottom")

  def encode_top(self):
    """Bottom features to features on 1/8 of the resolution."""
    channels = self.config["channels"]
    if self.config["layout"] == "paper":
      entry = [self.conv(channels // 2, 4, 2)]
    else:
      entry = [self.conv(channels, 2, 2)]
    entry += [layers.ReLU(), self.conv(channels, 3)]
    return tf.keras.Sequential(entry + self.stack(), name="encode_top")

  def decode_top(self):
    """Quantised top to 1/4: what the bottom need not code again."""
    channels, embedding = self.config["channels"], self.config["embedding"]
    body = [self.conv(channels, 3), *self.stack()]
    if self.config["layout"] == "paper":
      body.append(self.transposed(embedding))
    else:
      body += [self.conv(4 * embedding, 1, relu=False), DepthToSpace(2)]
    return tf.keras.Sequential(body, name="decode_top")

  def lift_top(self):
    """Quantised top to 1/4, for the decoder."""
    embedding = self.config["embedding"]
    if self.config["layout"] == "paper":
      body = [self.transposed(embedding)]
    else:
      body = [self.conv(4 * embedding, 1, relu=False), DepthToSpace(2)]
    return tf.keras.Sequential(body, name="lift_top")

  def decode(self):
    """Both levels [n, h/4, w/4, 2 embedding] to [n, h, w, 3]."""
    channels = self.config["channels"]
    body = [self.conv(channels, 3), *self.stack()]
    if self.config["layout"] == "paper":
      body += [
        self.transposed(channels // 2),
        layers.ReLU(),
        self.transposed(3),
      ]
    else:
      body += [self.conv(48, 3, relu=False), DepthToSpace(4)]
    # Pixels stay float32 under mixed precision.
    body.append(layers.Activation("linear", dtype="float32"))
    return tf.keras.Sequential(body, name="decode")
