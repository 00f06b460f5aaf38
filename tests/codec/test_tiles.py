"""Tests of `tiles`."""

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec import constant_weights, pretrained, tiles


def blur(pictures, reach):
  """A sum over a square of neighbours, with zeros around the picture."""
  size = 2 * reach + 1
  kernel = tf.ones([size, size, 1, 1])
  return tf.nn.conv2d(pictures, kernel, 1, "SAME")


@pytest.mark.parametrize("shape", [(40, 56), (8, 200), (64, 64)])
def test_tiles_with_a_border_make_up_the_whole(shape):
  rng = np.random.default_rng(0)
  picture = rng.integers(0, 9, [1, *shape, 1]).astype(np.float32)
  got, halved = tiles.over_tiles(
    lambda x: (blur(x, 8), x[:, ::2, ::2]),
    [tf.constant(picture)],
    [8],
    [(tf.float32, 8), (tf.float32, 4)],
    tile=2,
    border=1,
  )
  np.testing.assert_array_equal(got, blur(picture, 8))
  np.testing.assert_array_equal(halved, picture[:, ::2, ::2])


def test_a_border_that_is_too_narrow_would_be_seen():
  picture = tf.ones([1, 40, 40, 1])
  (got,) = tiles.over_tiles(
    lambda x: (blur(x, 9),), [picture], [8], [(tf.float32, 8)], tile=2, border=1
  )
  assert not np.array_equal(got, blur(picture, 9))


@pytest.mark.parametrize("name", ["cifar100", "tiny_imagenet"])
def test_codecs_see_no_further_than_the_border(name):
  """What lies outside a tile's border changes neither codes nor pixels."""
  folder = pretrained.folder_of(name)
  model = constant_weights.load_vqvae(
    (folder / pretrained.VQVAE_FILE).read_bytes()
  )
  rng = np.random.default_rng(1)
  image = rng.integers(0, 256, [1, 16, 16 * 8, 3], np.uint8)
  other = image.copy()
  seen = 8 * 12  # Columns of the border.
  other[:, :, seen + 8 :] = 255 - other[:, :, seen + 8 :]
  codes, changed = (model.encode(tf.constant(x)) for x in (image, other))
  for (one, two), scale in zip(
    zip(codes, changed, strict=True), (1, 2), strict=True
  ):
    np.testing.assert_array_equal(one[:, :, :scale], two[:, :, :scale])
    assert not np.array_equal(one, two) or not one.shape[-1]
  mixed = [
    tf.concat([one[:, :, : 13 * scale], two[:, :, 13 * scale :]], axis=2)
    for one, two, scale in zip(codes, changed, (1, 2), strict=True)
  ]
  np.testing.assert_allclose(
    tf.cast(model.decode(*codes), tf.float32)[:, :, :8],
    tf.cast(model.decode(*mixed), tf.float32)[:, :, :8],
    atol=1,
  )
