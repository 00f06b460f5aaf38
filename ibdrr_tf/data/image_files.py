"""Reads image files: JPEG, PNG and WebP, whatever their names say.

Every image comes back upright (EXIF), in colour and opaque: grey becomes RGB,
and transparent images are laid on white. All other modules read files here, so
that one file has the same pixels everywhere.

TensorFlow is imported only to resize: commands check their files first.
"""

from __future__ import annotations

import functools
import io
import os
import pathlib
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import numpy as np
from PIL import ExifTags, Image

from ibdrr_tf.errors import UserError

__all__ = [
  "BrokenImages",
  "ImageFile",
  "check_regular",
  "find_broken",
  "find_images",
  "in_parallel",
  "listed",
  "read_image",
  "read_images",
  "read_size",
  "refuse_broken",
  "say_skipped",
  "sort_files",
  "visible",
]

# A path, or the contents of a file that came through a pipe.
ImageFile = pathlib.Path | bytes

_SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")
_FORMATS = ("JPEG", "PNG", "WEBP")
# Operating systems leave these behind; nobody means them as images.
_LITTER = ("desktop.ini", "thumbs.db")
_DAMAGE = (
  *(OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error),
  Image.DecompressionBombError,
)
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


class BrokenImages(UserError):
  """Files that cannot be decoded, which a caller may offer to skip."""


def visible(folder: pathlib.Path) -> list[pathlib.Path]:
  """Lists a folder, sorted, without hidden files and the litter of systems."""
  return sorted(path for path in folder.iterdir() if not _is_litter(path.name))


def find_images(folder: str | os.PathLike[str]) -> list[pathlib.Path]:
  """Finds the image files of a folder and of its folders, sorted.

  Files of other kinds are skipped, and so are hidden files and folders.

  Raises:
    UserError: if there is no image, or if a name promises an image where there
      is no regular file.
  """
  found, others = sort_files(folder)
  if not found:
    hint = f", but {listed(others)}" if others else ""
    raise UserError(
      f"the folder '{folder}' holds no JPEG, PNG or WebP file{hint}: give "
      f"another."
    )
  for path in found:
    check_regular(path)
  return found


def sort_files(
  folder: str | os.PathLike[str],
) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
  """All files of a folder and of its folders, but for hidden ones.

  Returns:
    Files that are images by their name or their beginning, and all others,
    both sorted. They may be anything, such as links to nothing.
  """
  root = pathlib.Path(folder)
  found, others = [], []
  for path in sorted(root.rglob("*")):
    if path.is_dir() or any(map(_is_litter, path.relative_to(root).parts)):
      continue
    is_image = path.suffix.lower() in _SUFFIXES or _begins_like_image(path)
    (found if is_image else others).append(path)
  return found, others


def find_broken(paths: Sequence[pathlib.Path]) -> list[pathlib.Path]:
  """Decodes all files; gives those that cannot be read or decoded."""

  def is_broken(path: pathlib.Path) -> bool:
    try:
      read_image(path)
    except UserError:
      return True
    return False

  marks = in_parallel(is_broken, paths)
  return [path for path, mark in zip(paths, marks, strict=True) if mark]


def refuse_broken(broken: Sequence[pathlib.Path], total: int) -> None:
  """Names files that cannot be decoded, if there are any."""
  if broken:
    raise BrokenImages(
      f"{len(broken)} of {total} images cannot be decoded as JPEG, PNG or WebP "
      f"({listed(broken)}): repair, remove or skip them."
    )


def say_skipped(paths: Sequence[pathlib.Path], reason: str) -> None:
  """Lists files that are left out, on standard error, if there are any."""
  if paths:
    files = "file" if len(paths) == 1 else "files"
    text = f"skipped {len(paths)} {files} ({reason}): {listed(paths)}"
    print(f"ibdrr_tf: {text}", file=sys.stderr)


def listed(paths: Sequence[pathlib.Path]) -> str:
  """Names at most five files."""
  shown = [f"'{path}'" for path in paths[:5]]
  more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
  return f"{', '.join(shown)}{more}"


def check_regular(path: pathlib.Path) -> None:
  """Refuses pipes and devices, which could block, and links to nothing."""
  try:
    mode = path.stat().st_mode
  except OSError as error:
    if path.is_symlink():
      raise UserError(
        f"'{path}' links to '{os.readlink(path)}', which cannot be opened: "
        "repair or remove the link."
      ) from error
    raise _unreadable(path, error) from error
  if not stat.S_ISREG(mode):
    raise UserError(
      f"'{path}' is not a regular file: remove it, or replace it by an image."
    )


def read_size(file: ImageFile) -> tuple[int, int]:
  """Height and width of an image once it is upright; reads only the header."""
  with _opened(file) as image:
    size = image.height, image.width
    return size[::-1] if _turn(image) in _SWAPPING else size


def read_image(file: ImageFile, image_size: int = 0) -> np.ndarray:
  """Decodes an image.

  Args:
    file: a path, or a file's contents.
    image_size: if positive, the shorter side is scaled to it and the central
      square is cut out, see `resize.resize_and_crop`.

  Returns:
    uint8 [height, width, 3].

  Raises:
    UserError: if the file cannot be read or decoded.
  """
  with _opened(file) as image:
    try:
      pixels = _to_rgb(image)
    except _DAMAGE:
      raise _broken(file) from None
  if not image_size or pixels.shape[:2] == (image_size, image_size):
    return pixels
  import tensorflow as tf

  from ibdrr_tf.data.resize import resize_and_crop

  with tf.device("/CPU:0"):
    return resize_and_crop(pixels, image_size).numpy()


def read_images(
  files: Sequence[ImageFile],
  image_shape: tuple[int, int, int],
  image_size: int = 0,
) -> np.ndarray:
  """Decodes files in parallel.

  Args:
    files: paths, or contents.
    image_shape: (height, width, 3) of each image, after resizing.
    image_size: as for `read_image`.

  Returns:
    uint8 [n, height, width, 3].

  Raises:
    UserError: names the first file that cannot be decoded to this shape.
  """
  images = np.empty((len(files), *image_shape), np.uint8)

  def fill(number: int) -> None:
    pixels = read_image(files[number], image_size)
    if pixels.shape != tuple(image_shape):
      raise UserError(
        f"{_title(files[number])} is {_pixels(pixels.shape)}, not "
        f"{_pixels(image_shape)}: bring all images to one size."
      )
    images[number] = pixels

  for _ in in_parallel(fill, range(len(files))):
    pass
  return images


def in_parallel(function: Callable[[Any], Any], items: Sequence) -> Iterator:
  """Maps a function over items on all cores; results come in order.

  An exception is raised in the turn of its item, so the first item that fails
  is always the same one.
  """
  return _threads().map(function, items)


@functools.cache
def _threads() -> futures.ThreadPoolExecutor:
  # One pool a process, because tf.data may read several batches at a time.
  # Pillow decodes without Python's lock, so threads do run in parallel.
  return futures.ThreadPoolExecutor(os.cpu_count(), "decode")


def _is_litter(name: str) -> bool:
  return name.startswith(".") or name.lower() in _LITTER


def _begins_like_image(path: pathlib.Path) -> bool:
  """Whether a regular file begins as JPEG, PNG or WebP files do."""
  try:
    if not path.is_file():
      return False
    with path.open("rb") as file:
      start = file.read(12)
  except OSError:
    return False  # Its name does not promise an image either.
  return start.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or (
    start[:4] == b"RIFF" and start[8:] == b"WEBP"
  )


def _opened(file: ImageFile) -> Image.Image:
  """Opens a file and reads its header."""
  if isinstance(file, pathlib.Path):
    check_regular(file)
  source = io.BytesIO(file) if isinstance(file, bytes) else file
  try:
    return Image.open(source, formats=_FORMATS)
  except _DAMAGE as error:
    if getattr(error, "errno", None):
      raise _unreadable(file, error) from error
    raise _broken(file) from None


def _to_rgb(image: Image.Image) -> np.ndarray:
  """Sets an image upright and makes it opaque colour: uint8 [h, w, 3]."""
  image.load()
  turn = _turn(image)
  if turn is not None:
    image = image.transpose(turn)
  if image.mode.startswith("I"):
    return _deep_grey_to_rgb(image)
  if "A" in image.getbands() or "transparency" in image.info:
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(white, image)
  return np.asarray(image.convert("RGB"))


def _deep_grey_to_rgb(image: Image.Image) -> np.ndarray:
  """Takes the upper half of 16 bits; Pillow would cut them off at 255."""
  deep = np.asarray(image)
  grey = (deep >> 8).astype(np.uint8)
  if "transparency" in image.info:
    grey[deep == image.info["transparency"]] = 255
  return np.repeat(grey[..., np.newaxis], 3, axis=2)


def _turn(image: Image.Image) -> Image.Transpose | None:
  """Finds the turn that sets an image upright."""
  try:
    # PNG's own `getexif` decodes the pixels, which a size does not need; an
    # error in the pixels would be swallowed here.
    exif = Image.Image.getexif(image)
    orientation = exif.get(ExifTags.Base.Orientation)
  except (*_DAMAGE, KeyError, TypeError):
    return None  # Broken EXIF data say nothing about the pixels.
  return _TURNS.get(orientation)


def _title(file: ImageFile) -> str:
  return "standard input" if isinstance(file, bytes) else f"'{file}'"


def _pixels(shape: Sequence[int]) -> str:
  return f"{shape[0]}x{shape[1]} pixels"


def _unreadable(file: ImageFile, error: OSError) -> UserError:
  return UserError(
    f"{_title(file)} cannot be read ({error.strerror}): give yourself the "
    "right to, or remove it."
  )


def _broken(file: ImageFile) -> UserError:
  return UserError(
    f"{_title(file)} cannot be decoded as JPEG, PNG or WebP: repair or remove "
    "it."
  )
