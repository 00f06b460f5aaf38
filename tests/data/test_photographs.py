import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.data.photographs import read_photographs
from ibdrr_tf.errors import UserError


def test_photographs_of_all_shapes_become_squares_in_order(tmp_path):
  colours = np.array([[10, 20, 30], [200, 100, 50]], np.uint8)
  for name, colour, size in (
    ("b.png", colours[1], (20, 40)),
    ("a.webp", colours[0], (33, 9)),
  ):
    pixels = np.full((*size, 3), colour, np.uint8)
    Image.fromarray(pixels).save(tmp_path / name, lossless=True)
  images = read_photographs(str(tmp_path), 8)
  assert images.shape == (2, 8, 8, 3)
  np.testing.assert_array_equal(images[:, 3, 3], colours)


def test_bad_folders_and_files_are_named(tmp_path):
  with pytest.raises(UserError, match="no JPEG"):
    read_photographs(str(tmp_path), 8)
  (tmp_path / "x.jpg").write_bytes(b"no image")
  with pytest.raises(UserError, match=r"x\.jpg"):
    read_photographs(str(tmp_path), 8)
