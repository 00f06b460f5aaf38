import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageEnhance, ImageOps

from ibdrr_tf.data import augment, strong_augment
from ibdrr_tf.data.examples import in_memory

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


def test_views_are_flipped_and_shifted():
  images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
  examples = in_memory(images, np.zeros(3))
  assert augment.views_of(examples, 1) == [examples]
  numbers = tf.range(3, dtype=tf.int64)
  flipped = [v.read(numbers).numpy() for v in augment.views_of(examples, 2)]
  np.testing.assert_array_equal(flipped, [images, images[:, :, ::-1]])
  ten = [v.read(numbers).numpy() for v in augment.views_of(examples, 10)]
  assert len({view.tobytes() for view in ten}) == 10
  np.testing.assert_array_equal(ten[:2], flipped)
  np.testing.assert_array_equal(ten[2][:, :, :-2], images[:, :, 2:])
  np.testing.assert_array_equal(ten[8][:, 2:], images[:, :-2])


def drawn_for(name, level, place=0):
  """One operation, then none, and a square around a place: int32 [1, k]."""
  number = strong_augment._OPERATIONS.index(name)
  return np.array([[number, 0, level, 0, place, place]], np.int32)


FULL = (1 << 16) - 1


def test_operations_equal_those_of_pillow():
  """On what the grey square leaves: it covers the first eight rows' corner."""
  image = np.random.default_rng(1).integers(0, 256, (1, 32, 32, 3), np.uint8)
  picture = Image.fromarray(image[0])
  factor = 0.1 + 1.8 * FULL / (1 << 16)
  wanted = {
    "identity": picture,
    "brightness": ImageEnhance.Brightness(picture).enhance(factor),
    "colour": ImageEnhance.Color(picture).enhance(factor),
    "contrast": ImageEnhance.Contrast(picture).enhance(factor),
    "sharpness": ImageEnhance.Sharpness(picture).enhance(factor),
    "autocontrast": ImageOps.autocontrast(picture),
    "posterize": ImageOps.posterize(picture, 4),
    "solarize": ImageOps.solarize(picture, 256),
  }
  for name, want in wanted.items():
    got = strong_augment.operate(image, drawn_for(name, FULL)).numpy()[0]
    want = np.asarray(want).astype(int)
    # Pillow rounds in between, and leaves edges unsharpened.
    difference = np.abs(got.astype(int) - want)[8:-1, 8:-1]
    assert difference.max() <= 2, name
    assert (got[:8, :8] == 128).all(), name


def test_geometry_moves_towards_what_was_drawn():
  image = np.zeros([1, 32, 32, 3], np.uint8)
  image[:, 10:14, 20:24] = 255

  def centre(name, level):
    got = strong_augment.operate(image, drawn_for(name, level)).numpy()
    rows, columns = np.nonzero(got[0, :, :, 0] > 180)
    return rows.mean(), columns.mean()

  assert centre("identity", 0) == (11.5, 21.5)
  quarter = 3 << 14  # A strength of one half.
  row, column = centre("translate_x", quarter)
  assert row == 11.5 and column == pytest.approx(21.5 - 0.15 * 32, abs=0.7)
  row, column = centre("translate_y", quarter)
  assert column == 21.5 and row == pytest.approx(11.5 - 0.15 * 32, abs=0.7)
  # A point at (x, y) from the centre comes from its rotation by 15 degrees.
  x, y = 21.5 - 15.5, 11.5 - 15.5
  turn = np.pi / 12
  row, column = centre("rotate", quarter)
  want = (x * np.cos(turn) + y * np.sin(turn)) + 15.5
  assert column == pytest.approx(want, abs=0.7)
  assert row == pytest.approx(y * np.cos(turn) - x * np.sin(turn) + 15.5, abs=1)
  assert centre("shear_x", quarter)[1] == pytest.approx(
    15.5 + x - 0.15 * y, abs=0.7
  )


def test_strong_augmentation_does_not_depend_on_the_batch():
  strong = augment.Augmentation(padding=2, is_strong=True)
  images = np.random.default_rng(2).integers(0, 256, (40, 16, 16, 3), np.uint8)
  drawn = strong.draw(40, SEED)
  assert len(np.unique(drawn[:, 3])) > 8
  whole = strong.apply(images, drawn).numpy()
  for number in (0, 7, 39):
    part = slice(number, number + 1)
    alone = strong.apply(images[part], drawn[part]).numpy()
    np.testing.assert_array_equal(alone[0], whole[number])
  assert whole.dtype == np.uint8 and np.any(whole != images)
