"""Many images as one picture: which is where, and what is left of it."""

import io

import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.codec.lossy.vqvae import mean_psnr
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import sheets
from ibdrr_tf.replay.sheets import Sheet

SHAPE = (8, 12, 3)


def flat(count):
  """Images of one colour each, which every format keeps well."""
  colours = np.random.default_rng(0).integers(0, 256, (count, 1, 1, 3))
  return np.broadcast_to(colours, (count, *SHAPE)).astype(np.uint8)


@pytest.mark.parametrize("kind", list(sheets.FORMATS))
@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_every_image_comes_back_in_its_place(kind, count):
  images = flat(count)
  made = sheets.encode(images, kind, 95)
  back = sheets.decode(made, kind, SHAPE)
  assert back.shape == images.shape
  assert back.dtype == np.uint8
  # A mistaken place would be a wrong colour; tiles blend at their edges alone.
  middle = np.s_[:, 3:5, 5:7]
  assert np.abs(back[middle].astype(int) - images[middle]).max() < 40


@pytest.mark.parametrize("kind", list(sheets.FORMATS))
def test_a_sheet_is_one_file_that_others_can_open(kind):
  (sheet,) = sheets.encode(flat(20), kind, 60)
  with Image.open(io.BytesIO(sheet.data)) as picture:
    assert picture.size == (5 * 12, 4 * 8)  # 4 rows of 5 waste no tile.
  assert sheet.count == 20


@pytest.mark.parametrize("kind", list(sheets.FORMATS))
def test_less_quality_is_fewer_bytes(kind):
  images = np.random.default_rng(1).integers(0, 256, (16, *SHAPE), np.uint8)
  sizes, quality = [], []
  for level in (90, 40, 5):
    made = sheets.encode(images, kind, level)
    sizes.append(len(made[0].data))
    quality.append(mean_psnr(images, sheets.decode(made, kind, SHAPE)))
  assert sizes == sorted(sizes, reverse=True)
  assert quality == sorted(quality, reverse=True)


def test_many_or_large_images_need_several_sheets():
  parts = sheets.split(2_500, (32, 32, 3))
  assert [part.stop - part.start for part in parts] == [833, 833, 834]
  assert len(sheets.split(20, (4096, 4096, 3))) == 3  # 3 x 3 on each.
  assert sheets.encode(flat(0), "webp", 50) == []
  assert sheets.decode([], "webp", SHAPE).shape == (0, *SHAPE)


def test_damaged_and_mistaken_sheets_are_refused():
  (sheet,) = sheets.encode(flat(4), "webp", 50)
  for wrong in (sheet.data[:20], b"", b"nonsense"):
    with pytest.raises(
      UserError, match="sheet of remembered images is damaged"
    ):
      sheets.decode([Sheet(wrong, 4)], "webp", SHAPE)
  with pytest.raises(
    UserError, match=r"has \[16, 24, 3\] pixels, where \[24, 36, 3\]"
  ):
    sheets.decode([Sheet(sheet.data, 9)], "webp", SHAPE)
