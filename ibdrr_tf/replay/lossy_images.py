"""All images of old classes, each in a classical lossy format."""

import concurrent.futures
import io
import pathlib
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from PIL import Image

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import image_records

__all__ = ["FORMATS", "LossyStore", "best_quality", "decode", "encode"]

# Options that make files smallest.
FORMATS = {"webp": {"method": 6}, "jpeg": {"optimize": True}}
QUALITIES = range(101)


def encode(images: np.ndarray, kind: str, quality: int) -> list[bytes]:
  """Encodes images, uint8 [n, h, w, 3], each as a file of its own."""

  def encode_one(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, kind, quality=quality, **FORMATS[kind])
    return buffer.getvalue()

  with concurrent.futures.ThreadPoolExecutor() as pool:
    return list(pool.map(encode_one, images))


def decode(encoded: Iterable[bytes]) -> np.ndarray:
  """Decodes images of one size: uint8 [n, h, w, 3]."""

  def decode_one(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
      return np.asarray(image.convert("RGB"))

  with concurrent.futures.ThreadPoolExecutor() as pool:
    return np.array(list(pool.map(decode_one, encoded)), np.uint8)


def best_quality(size_at: Callable[[int], int], total_bytes: int) -> int:
  """The highest quality whose files fit, found by bisection.

  Files mostly grow with quality, but not always: what is given does fit, and
  the next higher quality does not.

  Args:
    size_at: bytes of all files at a quality.
    total_bytes: how many there may be.
  """
  low, high = QUALITIES.start - 1, QUALITIES.stop
  while high - low > 1:
    middle = (low + high) // 2
    if size_at(middle) <= total_bytes:
      low = middle
    else:
      high = middle
  if low < QUALITIES.start:
    raise UserError(
      f"config.memory.total_bytes={total_bytes} is too small: at quality 0 the "
      f"files take {size_at(QUALITIES.start)} bytes."
    )
  return low


class LossyStore:
  """A folder of encoded images: one file a phase, one record a class.

  Args:
    directory: where the files are; it need not exist yet.
    kind: what the files are called, a key of `FORMATS`.
    boundaries: classes seen after each phase; each has images.
  """

  def __init__(
    self, directory: str | pathlib.Path, kind: str, boundaries: Sequence[int]
  ):
    self._directory = pathlib.Path(directory)
    self._kind = kind
    self._boundaries = boundaries

  def write(
    self, phase: int, encoded: Sequence[bytes], labels: np.ndarray
  ) -> None:
    """Keeps the images of a phase.

    Args:
      phase: replaces what was kept for this phase.
      encoded: n images, as `encode` gives them.
      labels: int [n].
    """
    image_records.write(self.path(phase), encoded, labels)

  def path(self, phase: int) -> pathlib.Path:
    """The file of a phase; it is there once its images are kept."""
    return self._directory / f"{self._kind}-{phase:03d}.tfrecord"

  def read(self, phase: int) -> tuple[list[bytes], np.ndarray]:
    """Reads the images of all phases up to and including one; -1 has none.

    Returns:
      n images for `decode` and labels int32 [n], ordered by phase and label,
      and within a label as they were given.
    """
    paths = [self.path(earlier) for earlier in range(phase + 1)]
    return image_records.read(paths, self._boundaries)

  def sizes(self, phase: int) -> tuple[int, int, int]:
    """Up to a phase: bytes of images, other bytes in files, images."""
    encoded, labels = self.read(phase)
    payload = sum(map(len, encoded))
    paths = map(self.path, range(phase + 1))
    stored = sum(path.stat().st_size for path in paths)
    return payload, stored - payload, len(labels)
