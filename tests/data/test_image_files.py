import os
import pathlib

import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.data import image_files
from ibdrr_tf.data.images import open_images
from ibdrr_tf.errors import UserError


def test_images_of_all_shapes_become_squares_in_order(tmp_path):
  colours = np.array([[10, 20, 30], [200, 100, 50]], np.uint8)
  for name, colour, size in (
    ("b.png", colours[1], (20, 40)),
    ("a.webp", colours[0], (33, 9)),
  ):
    pixels = np.full((*size, 3), colour, np.uint8)
    Image.fromarray(pixels).save(tmp_path / name, lossless=True)
  found = image_files.find_images(tmp_path)
  images = image_files.read_images(found, (8, 8, 3), 8)
  np.testing.assert_array_equal(images[:, 3, 3], colours)
  with pytest.raises(UserError, match=r"a\.webp' is 33x9 pixels, not 20x40"):
    image_files.read_images(found, (20, 40, 3))


def test_bad_folders_and_files_are_named(tmp_path):
  with pytest.raises(UserError, match="no JPEG"):
    image_files.find_images(tmp_path)
  (tmp_path / "x.jpg").write_bytes(b"no image")
  (path,) = image_files.find_images(tmp_path)
  for read in (image_files.read_image, image_files.read_size):
    with pytest.raises(UserError, match=r"x\.jpg' cannot be decoded"):
      read(path)


def test_contents_decide_and_other_files_are_skipped(tmp_path):
  Image.new("RGB", (3, 2)).save(tmp_path / "photo", format="JPEG")
  Image.new("RGB", (3, 2)).save(tmp_path / "x.gif")
  (tmp_path / "notes.txt").write_text("no image")
  (tmp_path / "Thumbs.db").write_bytes(b"\x89PNG\r\n\x1a\n")
  os.mkfifo(tmp_path / "pipe")
  assert image_files.find_images(tmp_path) == [tmp_path / "photo"]


@pytest.mark.parametrize("target", ["nothing", "x.png"])
def test_links_to_nothing_are_named(tmp_path, target):
  (tmp_path / "x.png").symlink_to(target)
  for path in (tmp_path, tmp_path / "x.png"):
    with pytest.raises(UserError, match=r"x\.png' links to"):
      open_images(str(path))


def test_pipes_do_not_block(tmp_path):
  os.mkfifo(tmp_path / "x.png")
  for path in (tmp_path, tmp_path / "x.png"):
    with pytest.raises(UserError, match="not a regular file"):
      open_images(str(path))


@pytest.mark.parametrize(
  ("mode", "pixel", "options", "want"),
  [
    ("RGBA", (0, 0, 0, 0), {}, 255),
    ("RGBA", (0, 0, 0, 102), {}, 153),
    ("LA", (0, 0), {}, 255),
    ("P", 0, {"transparency": 0}, 255),
    ("L", 7, {"transparency": 7}, 255),
    ("L", 7, {"transparency": 8}, 7),
    ("RGB", (7, 7, 7), {"transparency": (7, 7, 7)}, 255),
    ("I;16", 5 * 256 + 9, {"transparency": 5 * 256 + 9}, 255),
    ("I;16", 5 * 256 + 9, {"transparency": 5 * 256}, 5),
  ],
)
def test_transparent_images_lie_on_white(tmp_path, mode, pixel, options, want):
  """Pixels that nobody sees were black, or anything."""
  path = tmp_path / "a.png"
  Image.new(mode, (3, 2), pixel).save(path, **options)
  assert (image_files.read_image(path) == want).all()


def test_an_image_of_the_right_size_is_not_resized(tmp_path):
  pixels = np.random.default_rng(0).integers(0, 256, (9, 9, 3), np.uint8)
  Image.fromarray(pixels).save(tmp_path / "a.png")
  path = pathlib.Path(tmp_path / "a.png")
  np.testing.assert_array_equal(image_files.read_image(path, 9), pixels)
