import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.data import augment

SEED = tf.constant([3, 4])


def test_crops_equal_padding_and_slicing_in_numpy():
  images = np.random.default_rng(0).integers(
    0, 256, (50, 9, 7, 3), dtype=np.uint8
  )
  crops = augment.draw_crops(50, 4, SEED)
  got = augment.crop_and_flip(tf.constant(images), crops, 4).numpy()
  padded = np.pad(images, [(0, 0), (4, 4), (4, 4), (0, 0)], mode="reflect")
  for i, (row, column, flip) in enumerate(crops.numpy()):
    want = padded[i, row : row + 9, column : column + 7]
    if flip:
      want = want[:, ::-1]
    np.testing.assert_array_equal(got[i], want)
  assert got.dtype == np.uint8


@pytest.mark.parametrize("size", [1, 2, 3])
def test_images_may_be_smaller_than_their_padding(size):
  image = np.arange(3 * size * size, dtype=np.uint8).reshape(1, size, size, 3)
  padded = np.pad(image, [(0, 0), (4, 4), (4, 4), (0, 0)], mode="reflect")
  for row in range(9):
    crops = np.array([[row, 8 - row, 0]], np.int32)
    got = augment.crop_and_flip(tf.constant(image), crops, 4).numpy()
    want = padded[:, row : row + size, 8 - row : 8 - row + size]
    np.testing.assert_array_equal(got, want)


def test_crops_cover_their_range_evenly():
  crops = augment.draw_crops(20_000, 4, SEED).numpy()
  for column, values in ((0, 9), (1, 9), (2, 2)):
    counts = np.bincount(crops[:, column], minlength=values)
    assert len(counts) == values
    assert counts.min() > 0.9 * 20_000 / values


def test_crops_depend_on_the_seed_alone():
  first = augment.draw_crops(100, 4, SEED)
  tf.random.uniform([5])
  np.testing.assert_array_equal(first, augment.draw_crops(100, 4, SEED))
  other = augment.draw_crops(100, 4, SEED + 1)
  assert (first.numpy() != other.numpy()).any()
