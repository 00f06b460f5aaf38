"""Image files without classes."""

import pathlib

import numpy as np
from PIL import Image, UnidentifiedImageError

from ibdrr_tf.data.resize import resize_and_crop
from ibdrr_tf.errors import UserError

__all__ = ["read_photographs"]

_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}


def read_photographs(folder: str, image_size: int) -> np.ndarray:
  """Reads all images of a folder, by name, each cut to a square.

  Args:
    folder: holds JPEG, PNG or WebP files.
    image_size: side of the square.

  Returns:
    uint8 [n, image_size, image_size, 3].
  """
  root = pathlib.Path(folder)
  paths = sorted(p for p in root.glob("*") if p.suffix.lower() in _SUFFIXES)
  if not paths:
    raise UserError(
      f"the folder {folder} holds no JPEG, PNG or WebP file: give another."
    )
  return np.stack([_read(path, image_size) for path in paths])


def _read(path: pathlib.Path, image_size: int) -> np.ndarray:
  try:
    with Image.open(path) as image:
      pixels = np.asarray(image.convert("RGB"))
  except (UnidentifiedImageError, OSError) as error:
    raise UserError(
      f"{path} is no image that can be read: repair or remove it."
    ) from error
  return resize_and_crop(pixels, image_size).numpy()
