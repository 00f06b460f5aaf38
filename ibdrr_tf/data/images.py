"""Images without labels, of any sizes: files, folders and arrays.

A *pile* knows names and sizes of its images at once and reads pixels when they
are asked for, so that a folder need not fit into memory.
"""

from __future__ import annotations

import dataclasses
import io
import pathlib
import struct
from collections.abc import Callable

import numpy as np
from PIL import ExifTags, Image

from ibdrr_tf.errors import UserError

__all__ = ["Pile", "open_images"]

_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")
_FORMATS = ("JPEG", "PNG", "WEBP")
_NPY = b"\x93NUMPY"
# By EXIF's orientation; 1 is upright.
_TURNS = {
  2: Image.Transpose.FLIP_LEFT_RIGHT,
  3: Image.Transpose.ROTATE_180,
  4: Image.Transpose.FLIP_TOP_BOTTOM,
  5: Image.Transpose.TRANSPOSE,
  6: Image.Transpose.ROTATE_270,
  7: Image.Transpose.TRANSVERSE,
  8: Image.Transpose.ROTATE_90,
}
_SWAPPING = {_TURNS[orientation] for orientation in (5, 6, 7, 8)}


@dataclasses.dataclass(frozen=True)
class Pile:
  """Images in a fixed order.

  Attributes:
    sizes: height and width of each.
    names: of each, with folders, parted by "/"; None for arrays.
    read: gives image k, uint8 [height, width, 3].
  """

  sizes: tuple[tuple[int, int], ...]
  names: tuple[str, ...] | None
  read: Callable[[int], np.ndarray]


def open_images(path: str, stream: io.BufferedIOBase | None = None) -> Pile:
  """Opens an image file, a folder with image files, or a `.npy` array.

  Args:
    path: a file; a folder, whose files are taken with those of its folders, by
      name; or "-" for standard input, an array or one image file.
    stream: what "-" is.

  Raises:
    UserError: if there is nothing to read, or something that is no image.
  """
  if path == "-":
    data = stream.read()
    if data.startswith(_NPY):
      return _open_array(io.BytesIO(data), "standard input", mmap=False)
    return _open_files({"image": io.BytesIO(data)}, "standard input")
  root = pathlib.Path(path)
  if root.is_dir():
    files = {
      file.relative_to(root).as_posix(): file
      for file in sorted(root.rglob("*"))
      if file.suffix.lower() in _SUFFIXES
      and file.is_file()
      and not any(part[0] == "." for part in file.relative_to(root).parts)
    }
    if not files:
      raise UserError(
        f"the folder {path} holds no JPEG, PNG or WebP file: give another."
      )
    return _open_files(files, path)
  if not root.is_file():
    raise UserError(
      f"there is no {path}: give an image file, a folder of image files or a "
      f".npy array."
    )
  if root.suffix.lower() == ".npy":
    return _open_array(root, path, mmap=True)
  return _open_files({root.name: root}, path)


def _open_array(
  file: pathlib.Path | io.BytesIO, name: str, *, mmap: bool
) -> Pile:
  try:
    array = np.load(file, mmap_mode="r" if mmap else None, allow_pickle=False)
  except (OSError, ValueError, EOFError) as error:
    raise UserError(
      f"{name} is no .npy array of numbers: write one with numpy.save."
    ) from error
  if isinstance(array, np.ndarray) and array.ndim == 3:
    array = array[np.newaxis]
  if (
    not isinstance(array, np.ndarray)
    or array.dtype != np.uint8
    or array.ndim != 4
    or array.shape[3] != 3
    or 0 in array.shape
  ):
    raise UserError(
      f"{name} holds {array.dtype} {list(array.shape)}: give uint8 images, "
      f"[n, height, width, 3]."
    )
  size = array.shape[1:3]
  return Pile((size,) * len(array), None, lambda k: np.asarray(array[k]))


def _open_files(
  files: dict[str, pathlib.Path | io.BytesIO], where: str
) -> Pile:
  def full_name(name: str) -> str:
    is_path = isinstance(files[name], pathlib.Path)
    return str(files[name]) if is_path else where

  names = tuple(files)
  sizes = []
  for name, file in files.items():
    with _opened(file, full_name(name)) as image:
      lies_down = _turn(image) in _SWAPPING
      sides = image.height, image.width
      sizes.append(sides[::-1] if lies_down else sides)

  def read(number: int) -> np.ndarray:
    name = names[number]
    with _opened(files[name], full_name(name)) as image:
      return _to_rgb(image, full_name(name))

  return Pile(tuple(sizes), names, read)


def _opened(file: pathlib.Path | io.BytesIO, name: str) -> Image.Image:
  try:
    return Image.open(file, formats=_FORMATS)
  except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
    raise _broken(name) from None


def _to_rgb(image: Image.Image, name: str) -> np.ndarray:
  """Upright; grey becomes colour, transparency is dropped; uint8 [h, w, 3]."""
  try:
    turn = _turn(image)
    if turn is not None:
      image = image.transpose(turn)
    if image.mode.startswith("I"):
      # Sixteen bits of grey, which a conversion would cut off at 255.
      grey = (np.asarray(image) >> 8).astype(np.uint8)
      return np.repeat(grey[..., np.newaxis], 3, axis=2)
    return np.asarray(image.convert("RGB"))
  except (OSError, SyntaxError, ValueError):
    raise _broken(name) from None


def _turn(image: Image.Image) -> Image.Transpose | None:
  """What sets an image upright that a camera has stored otherwise."""
  try:
    # Not `image.getexif`: that of PNG decodes the pixels first, which a size
    # does not need, and what is wrong with them would be met, and lost, here.
    exif = Image.Image.getexif(image)
    orientation = exif.get(ExifTags.Base.Orientation)
  except (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error):
    return None  # Whatever camera wrote that, the pixels are another matter.
  return _TURNS.get(orientation)


def _broken(name: str) -> UserError:
  return UserError(
    f"{name} cannot be decoded as JPEG, PNG or WebP: repair or remove it."
  )
