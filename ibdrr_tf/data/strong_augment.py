"""RandAugment and Cutout, as pure functions of what was drawn for an example.

Cubuk et al. (2020), "RandAugment": two operations at random, each of a random
strength; then a grey square (DeVries and Taylor, 2017). Histogram equalisation
is left out, because it is slow in a batch. Every operation is computed for the
whole batch, so that no shape depends on what was drawn.
"""

import math

import tensorflow as tf

__all__ = ["DRAWN", "draw_operations", "operate"]

_ROUNDS = 2
_LEVELS = 1 << 16  # of a strength, and of the place of the square
_GREY = 128.0
# Weights of a pixel's colours in its brightness (ITU-R 601).
_BRIGHTNESS = (0.299, 0.587, 0.114)
_GEOMETRY = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
_COLOUR = (
  "brightness",
  "colour",
  "contrast",
  "sharpness",
  "posterize",
  "solarize",
  "autocontrast",
)
_OPERATIONS = ("identity", *_GEOMETRY, *_COLOUR)
# For each round an operation and its strength, then the square's place.
DRAWN = 2 * _ROUNDS + 2


def draw_operations(count: int | tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
  """Draws operations, strengths and squares: int32 [count, DRAWN].

  Args:
    count: number of examples.
    seed: int32 [2], stateless.
  """
  seeds = tf.random.experimental.stateless_split(seed, 2)
  operations = tf.random.stateless_uniform(
    [count, _ROUNDS], seeds[0], 0, len(_OPERATIONS), tf.int32
  )
  levels = tf.random.stateless_uniform(
    [count, _ROUNDS + 2], seeds[1], 0, _LEVELS, tf.int32
  )
  return tf.concat([operations, levels], axis=1)


def operate(images: tf.Tensor, drawn: tf.Tensor) -> tf.Tensor:
  """Changes each image of a batch as it was drawn.

  Args:
    images: uint8 [b, h, w, 3].
    drawn: int32 [b, DRAWN], of `draw_operations`.

  Returns:
    uint8 [b, h, w, 3].
  """
  pixels = tf.cast(images, tf.float32)
  levels = tf.cast(drawn[:, _ROUNDS:], tf.float32) / _LEVELS
  for number in range(_ROUNDS):
    operation, level = drawn[:, number], levels[:, number]
    pixels = _moved(pixels, operation, 2.0 * level - 1.0)
    pixels = _coloured(pixels, operation, level)
  pixels = _cut_out(pixels, levels[:, _ROUNDS:])
  return tf.cast(tf.round(tf.clip_by_value(pixels, 0.0, 255.0)), tf.uint8)


def _is(operation: tf.Tensor, name: str) -> tf.Tensor:
  return tf.equal(operation, _OPERATIONS.index(name))


def _moved(
  pixels: tf.Tensor, operation: tf.Tensor, strength: tf.Tensor
) -> tf.Tensor:
  """Rotates, shears or shifts around the centre; edges are reflected.

  Args:
    pixels: float32 [b, h, w, 3].
    operation: int32 [b].
    strength: float32 [b], -1 to 1; 1 is 30 degrees, a shear of 0.3, or a shift
      by 0.3 of a side.
  """
  height, width = pixels.shape[1:3]

  def of(name: str, most: float) -> tf.Tensor:
    return tf.where(_is(operation, name), most * strength, 0.0)

  angle = of("rotate", math.pi / 6)
  # The output at (x, y), seen from the centre, shows the input at
  # (a x + b y, c x + d y), shifted.
  a = d = tf.cos(angle)
  b = -tf.sin(angle) + of("shear_x", 0.3)
  c = tf.sin(angle) + of("shear_y", 0.3)
  x, y = (width - 1) / 2.0, (height - 1) / 2.0
  shift_x = of("translate_x", 0.3 * width) + x - a * x - b * y
  shift_y = of("translate_y", 0.3 * height) + y - c * x - d * y
  zero = tf.zeros_like(a)
  return tf.raw_ops.ImageProjectiveTransformV3(
    images=pixels,
    transforms=tf.stack([a, b, shift_x, c, d, shift_y, zero, zero], axis=1),
    output_shape=[height, width],
    interpolation="BILINEAR",
    fill_mode="REFLECT",
    fill_value=0.0,
  )


def _coloured(
  pixels: tf.Tensor, operation: tf.Tensor, level: tf.Tensor
) -> tf.Tensor:
  """Changes colours.

  Args:
    pixels: float32 [b, h, w, 3].
    operation: int32 [b].
    level: float32 [b], 0 to 1.
  """
  level = level[:, tf.newaxis, tf.newaxis, tf.newaxis]
  grey = tf.tensordot(pixels, _BRIGHTNESS, 1)[..., tf.newaxis]
  mean = tf.reduce_mean(grey, axis=[1, 2], keepdims=True)
  factor = 0.1 + 1.8 * level
  step = tf.pow(2.0, tf.floor(5.0 * level))
  low = tf.reduce_min(pixels, axis=[1, 2], keepdims=True)
  high = tf.reduce_max(pixels, axis=[1, 2], keepdims=True)
  changed = {
    "brightness": pixels * factor,
    "colour": grey + (pixels - grey) * factor,
    "contrast": mean + (pixels - mean) * factor,
    "sharpness": _blurred(pixels) * (1.0 - factor) + pixels * factor,
    "posterize": tf.floor(pixels / step) * step,
    "solarize": tf.where(pixels < 256.0 * level, pixels, 255.0 - pixels),
    "autocontrast": 255.0 * (pixels - low) / tf.maximum(high - low, 1.0),
  }
  result = pixels
  for name in _COLOUR:
    chosen = _is(operation, name)[:, tf.newaxis, tf.newaxis, tf.newaxis]
    result = tf.where(chosen, changed[name], result)
  return tf.clip_by_value(result, 0.0, 255.0)


def _blurred(pixels: tf.Tensor) -> tf.Tensor:
  """Pillow's SMOOTH: weights of 1 around one of 5, over 13."""
  padded = tf.pad(pixels, [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC")
  sums = 9.0 * tf.nn.avg_pool2d(padded, 3, 1, "VALID")
  return (sums + 4.0 * pixels) / 13.0


def _cut_out(pixels: tf.Tensor, place: tf.Tensor) -> tf.Tensor:
  """Paints a square of half a side grey; it may stick out of the image.

  Args:
    pixels: float32 [b, h, w, 3].
    place: float32 [b, 2], its centre: shares of height and width.
  """
  inside = []
  for axis, size in enumerate(pixels.shape[1:3]):
    centre = tf.floor(place[:, axis, tf.newaxis] * size)
    distance = tf.range(size, dtype=tf.float32) - centre
    inside.append((distance >= -(size // 4)) & (distance < size // 4))
  hole = inside[0][:, :, tf.newaxis] & inside[1][:, tf.newaxis, :]
  return tf.where(hole[..., tf.newaxis], _GREY, pixels)
