"""Images without labels, of any sizes: files, folders and arrays.

A *pile* knows names and sizes of its images at once and reads pixels when they
are asked for, so that a folder need not fit into memory.
"""

from __future__ import annotations

import dataclasses
import io
import pathlib
from collections.abc import Callable

import numpy as np

from ibdrr_tf.data import image_files
from ibdrr_tf.errors import UserError

__all__ = ["Pile", "open_images"]

_NPY = b"\x93NUMPY"


@dataclasses.dataclass(frozen=True)
class Pile:
  """Images in a fixed order.

  Attributes:
    sizes: height and width of each.
    names: path of each below its folder, with "/"; None for arrays.
    read: gives image k, uint8 [height, width, 3].
  """

  sizes: tuple[tuple[int, int], ...]
  names: tuple[str, ...] | None
  read: Callable[[int], np.ndarray]


def open_images(
  path: str,
  stream: io.BufferedIOBase | None = None,
  *,
  skip_broken: bool | None = None,
) -> Pile:
  """Opens an image file, a folder with image files, or a `.npy` array.

  Args:
    path: a file; a folder, whose files are taken with those of its folders, by
      name; or "-" for standard input, an array or one image file.
    stream: what "-" is.
    skip_broken: whether to leave out files of a folder that cannot be decoded,
      or to name all of them at once. Both decode everything once. None does
      neither: a broken file is named when it is read. Files of a folder that
      are left out are listed on standard error.

  Raises:
    UserError: if there is nothing to read, or something that is no image.
  """
  if path == "-":
    data = stream.read()
    if data.startswith(_NPY):
      return _open_array(io.BytesIO(data), "standard input", mmap=False)
    return _open_files({"image": data})
  root = pathlib.Path(path)
  if root.is_dir():
    found = _find(root, skip_broken)
    return _open_files({f.relative_to(root).as_posix(): f for f in found})
  if not root.exists() and not root.is_symlink():
    raise UserError(
      f"there is no {path}: give an image file, a folder of image files or a "
      f".npy array."
    )
  image_files.check_regular(root)
  if root.suffix.lower() == ".npy":
    return _open_array(root, path, mmap=True)
  return _open_files({root.name: root})


def _find(root: pathlib.Path, skip_broken: bool | None) -> list[pathlib.Path]:
  """The images of a folder; see `open_images`."""
  found, others = image_files.sort_files(root)
  if skip_broken is None:
    found = image_files.find_images(root)
    image_files.say_skipped(others, "not JPEG, PNG or WebP")
    return found
  if not skip_broken:
    image_files.find_images(root)  # Says what is wrong with links and pipes.
  broken = image_files.find_broken(found)
  if not skip_broken:
    image_files.refuse_broken(broken, len(found))
  image_files.say_skipped(others, "not JPEG, PNG or WebP")
  image_files.say_skipped(broken, "cannot be decoded")
  left = [path for path in found if path not in set(broken)]
  if not left:
    raise UserError(
      f"the folder '{root}' holds no image that can be decoded: give another."
    )
  return left


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


def _open_files(files: dict[str, image_files.ImageFile]) -> Pile:
  names = tuple(files)
  return Pile(
    tuple(image_files.read_size(file) for file in files.values()),
    names,
    lambda number: image_files.read_image(files[names[number]]),
  )
