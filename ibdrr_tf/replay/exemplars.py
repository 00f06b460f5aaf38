"""Raw images kept of old classes, losslessly compressed, in TFRecord files."""

import io
import pathlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import image_records

__all__ = ["ExemplarStore", "encode", "most_that_fit", "stored_size"]


class ExemplarStore:
  """A folder of raw exemplars: one file a phase, one record a class.

  Each record is a `tf.train.Example` with the label and the images of a class
  as lossless WebP, which needs about a fifth less than PNG for images of 32
  pixels. TFRecord adds a checksum to every record. A phase's file is written
  atomically, and writing it again replaces it, so a phase may be repeated.

  Args:
    directory: where the files are; it need not exist yet.
    boundaries: classes seen after each phase; each has exemplars.
  """

  def __init__(self, directory: str | pathlib.Path, boundaries: Sequence[int]):
    self._directory = pathlib.Path(directory)
    self._boundaries = boundaries

  def write(self, phase: int, images: np.ndarray, labels: np.ndarray) -> None:
    """Keeps the exemplars of a phase.

    Args:
      phase: replaces what was kept for this phase.
      images: uint8 [n, h, w, 3].
      labels: int [n].
    """
    encoded = [encode(image) for image in images]
    image_records.write(self._path(phase), encoded, labels)

  def read(self, phase: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads the exemplars of all phases up to and including one.

    Returns:
      images uint8 [n, h, w, 3] and labels int32 [n], ordered by phase and
      label; of phase -1 there are none.
    """
    paths = [self._path(earlier) for earlier in range(phase + 1)]
    encoded, labels = image_records.read(paths, self._boundaries)
    return np.array([_decode(image) for image in encoded], np.uint8), labels

  @property
  def stored_bytes(self) -> int:
    """Size of the files on disk."""
    return sum(path.stat().st_size for path in self._paths())

  def _path(self, phase: int) -> pathlib.Path:
    return self._directory / f"exemplars-{phase:03d}.tfrecord"

  def _paths(self) -> list[pathlib.Path]:
    return sorted(self._directory.glob("exemplars-*.tfrecord"))


def stored_size(sizes: Sequence[np.ndarray], count: int) -> int:
  """Bytes of the files that hold so many images of each class.

  Args:
    sizes: for each class, by label, bytes of its images in the order in which
      they would be taken, int [n]. A class with fewer images gives all.
    count: images of a class.
  """
  return image_records.file_bytes(
    {label: s[:count].tolist() for label, s in enumerate(sizes)}
  )


def most_that_fit(sizes: Sequence[np.ndarray], total_bytes: int) -> int:
  """How many images of each class fit: the largest equal number.

  Args:
    sizes: as those of `stored_size`.
    total_bytes: that the files may have together.
  """
  low, high = 0, max(map(len, sizes)) + 1
  while high - low > 1:
    middle = (low + high) // 2
    if stored_size(sizes, middle) <= total_bytes:
      low = middle
    else:
      high = middle
  if not low:
    raise UserError(
      f"config.memory.total_bytes={total_bytes} is too small: one raw image of "
      f"each class takes {stored_size(sizes, 1)} bytes."
    )
  return low


def encode(image: np.ndarray) -> bytes:
  """An image, uint8 [h, w, 3], as lossless WebP."""
  buffer = io.BytesIO()
  Image.fromarray(image).save(buffer, "WEBP", lossless=True, quality=100)
  return buffer.getvalue()


def _decode(data: bytes) -> np.ndarray:
  with Image.open(io.BytesIO(data)) as image:
    return np.asarray(image.convert("RGB"))
