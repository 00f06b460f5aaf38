"""Contact sheets: many small images as one picture, in one lossy file.

An image of 32 pixels has less to tell than the header of its own file. Tiled
into one picture, images share one header and one state of the entropy coder.
It needs no model and no training, and so it is what codes are measured against.
"""

import io
import itertools
from typing import NamedTuple

import numpy as np
from PIL import Image

from ibdrr_tf.replay import image_formats

__all__ = ["FORMATS", "Sheet", "decode", "encode", "split"]

# Pillow's format and options. Colours have full resolution, which makes the
# better picture for its bytes at these sizes. On a sheet of 500 images of 32
# pixels `avif_best` gains 0.5 dB at equal bytes, and takes five times as long.
FORMATS = {
  "avif": ("AVIF", {"speed": 6, "subsampling": "4:4:4", "max_threads": 1}),
  "avif_best": ("AVIF", {"speed": 4, "subsampling": "4:4:4", "max_threads": 1}),
  "webp": ("WEBP", {"method": 6}),
}
# No format has more pixels along a side than this.
_MOST_PIXELS = 16_383
_MOST_IMAGES = 1_000


class Sheet(NamedTuple):
  """One picture.

  Attributes:
    data: the file.
    count: number of images in it.
  """

  data: bytes
  count: int


def split(count: int, image_shape: tuple[int, int, int]) -> list[slice]:
  """Which images go onto which sheet, as alike in number as can be.

  Args:
    count: number of images.
    image_shape: (height, width, 3) of each.
  """
  most = (_MOST_PIXELS // image_shape[0]) * (_MOST_PIXELS // image_shape[1])
  sheets = max(1, -(-count // max(1, min(most, _MOST_IMAGES))))
  edges = [count * number // sheets for number in range(sheets + 1)]
  return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def encode(images: np.ndarray, kind: str, quality: int) -> list[Sheet]:
  """Images, uint8 [n, h, w, 3], as sheets.

  Args:
    images: in an order in which neighbours are alike, such as one class.
    kind: a key of `FORMATS`.
    quality: 0 to 100.
  """
  name, options = FORMATS[kind]
  sheets = []
  for part in split(len(images), images.shape[1:]):
    tiles = images[part]
    if not len(tiles):
      continue
    buffer = io.BytesIO()
    picture = Image.fromarray(_tile(tiles))
    picture.save(buffer, name, quality=quality, **options)
    sheets.append(Sheet(buffer.getvalue(), len(tiles)))
  return sheets


def decode(
  sheets: list[Sheet], kind: str, image_shape: tuple[int, int, int]
) -> np.ndarray:
  """The images of sheets, in order: uint8 [n, *image_shape].

  Raises:
    UserError: if a sheet is damaged or of another size.
  """
  parts = [np.zeros([0, *image_shape], np.uint8)]
  for sheet in sheets:
    rows, columns = _grid(sheet.count)
    height, width, _ = image_shape
    picture = image_formats.decode_picture(
      sheet.data,
      FORMATS[kind][0],
      (rows * height, columns * width, 3),
      "a sheet of remembered images",
    )
    tiles = picture.reshape(rows, height, columns, width, 3).swapaxes(1, 2)
    parts.append(tiles.reshape(-1, *image_shape)[: sheet.count])
  return np.concatenate(parts)


def _grid(count: int) -> tuple[int, int]:
  """Rows and columns: about square, with as few empty tiles as can be."""
  least = int(np.ceil(np.sqrt(count)))
  choices = [(-(-count // c), c) for c in range(least, least + least // 3 + 1)]
  return min(choices, key=lambda grid: (grid[0] * grid[1], grid[1]))


def _tile(images: np.ndarray) -> np.ndarray:
  """Images, uint8 [n, h, w, 3], side by side; the last fills empty tiles."""
  count, height, width, _ = images.shape
  rows, columns = _grid(count)
  numbers = np.minimum(np.arange(rows * columns), count - 1)
  tiles = images[numbers].reshape(rows, columns, height, width, 3)
  return tiles.swapaxes(1, 2).reshape(rows * height, columns * width, 3)
