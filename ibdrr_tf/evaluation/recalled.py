"""Images as a memory gives them back, and how near they are to originals."""

import dataclasses
import math

import numpy as np

__all__ = ["Recalled", "psnr"]


@dataclasses.dataclass(frozen=True)
class Recalled:
  """Some images that a memory holds.

  Attributes:
    labels: int [n], sorted.
    images: uint8 [n, h, w, 3], as memory gives them back.
    originals: uint8 [n, h, w, 3]; None if they are gone.
    bytes_of: stored bytes of an image, by label; a label may be missing.
  """

  labels: np.ndarray
  images: np.ndarray
  originals: np.ndarray | None
  bytes_of: dict[int, float]


def psnr(original: np.ndarray, image: np.ndarray) -> float:
  """Peak signal-to-noise ratio in dB; infinite for equal images.

  Args:
    original: uint8 [h, w, 3].
    image: the same shape.
  """
  error = np.mean((original.astype(float) - image.astype(float)) ** 2)
  return math.inf if not error else 10 * math.log10(255**2 / error)
