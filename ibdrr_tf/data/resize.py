"""Brings images of any size to one size."""

import tensorflow as tf

from ibdrr_tf import errors

__all__ = ["check_size", "resize_and_crop"]


def check_size(image_size: int) -> None:
  """Refuses what is no number of pixels; 0 leaves images as they are."""
  if image_size < 0:
    raise errors.UserError(
      f"--config.data.image_size is {image_size}: give a number of pixels, or "
      "0 to use the images as they are."
    )


def resize_and_crop(image: tf.Tensor, size: int) -> tf.Tensor:
  """Scales the shorter side to `size` and cuts out the central square.

  Args:
    image: uint8 [height, width, channels]; the sizes may be known only when the
      graph runs.
    size: height and width of the result.

  Returns:
    uint8 [size, size, channels]. An image of that size comes back unchanged.
  """
  shape = tf.shape(image)[:2]
  scale = size / tf.reduce_min(shape)
  # Rounding may not make the shorter side too short for the crop.
  scaled = tf.maximum(
    tf.cast(tf.round(scale * tf.cast(shape, scale.dtype)), tf.int32), size
  )
  pixels = tf.image.resize(image, scaled, antialias=True)
  top, left = tf.unstack((scaled - size) // 2)
  pixels = pixels[top : top + size, left : left + size]
  pixels = tf.saturate_cast(tf.round(pixels), tf.uint8)
  return tf.ensure_shape(pixels, [size, size, image.shape[-1]])
