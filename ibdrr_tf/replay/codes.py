"""Labelled images as codes, in RAM."""

import dataclasses

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec.lossless.planes import to_planes

__all__ = ["Codes"]


@dataclasses.dataclass(frozen=True)
class Codes:
  """Labelled images as codes.

  Attributes:
    top: int16 [n, h, w, depth].
    bottom: int16 [n, 2h, 2w, depth].
    labels: int32 [n].
    held_out: bool [n], whether an image only tests; None if none does.
  """

  top: np.ndarray
  bottom: np.ndarray
  labels: np.ndarray
  held_out: np.ndarray | None = None

  def __post_init__(self):
    if self.held_out is None:
      object.__setattr__(self, "held_out", np.zeros(len(self.labels), bool))

  def __len__(self) -> int:
    return len(self.labels)

  @property
  def count(self) -> int:
    """Number of codes, of both levels."""
    return self.top.size + self.bottom.size

  def planes(self) -> np.ndarray:
    """All codes on one grid, int32 [n, h, w, planes]; see `codec.planes`."""
    levels = (tf.constant(level, tf.int32) for level in (self.top, self.bottom))
    return to_planes(*levels).numpy()

  def take(self, chosen: np.ndarray) -> "Codes":
    """Some of the images: by indices, or by a mask."""
    return Codes(*(getattr(self, name)[chosen] for name in _FIELDS))

  @staticmethod
  def join(parts: list["Codes"]) -> "Codes":
    """Several sets, one after the other."""
    return Codes(
      *(
        np.concatenate([getattr(part, name) for part in parts])
        for name in _FIELDS
      )
    )


_FIELDS = tuple(field.name for field in dataclasses.fields(Codes))
