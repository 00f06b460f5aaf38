"""What a run has predicted for every test image: `predictions.npz`."""

from __future__ import annotations

import dataclasses
import io
import pathlib
import zlib
from zipfile import BadZipFile

import numpy as np

from ibdrr_tf import files
from ibdrr_tf.errors import UserError

__all__ = ["FILE", "UNSEEN", "Predictions", "read_predictions"]

FILE = "predictions.npz"
# Stands for the prediction of an image whose class has not been learned yet.
UNSEEN = np.iinfo(np.uint16).max


@dataclasses.dataclass(frozen=True)
class Predictions:
  """Labels of all test images of a run, and what each phase has predicted.

  Attributes:
    labels: uint16 [n], in the order of the data set.
    predicted: uint16 [phases, n]; `UNSEEN` for images of later classes.
  """

  labels: np.ndarray
  predicted: np.ndarray

  @staticmethod
  def none(labels: np.ndarray) -> Predictions:
    """Before the first phase.

    Args:
      labels: int [n].
    """
    labels = labels.astype(np.uint16)
    return Predictions(labels, np.zeros([0, len(labels)], np.uint16))

  def up_to(self, phase: int) -> Predictions:
    """Without later phases; `UNSEEN` where a phase before it is missing."""
    missing = max(0, phase - len(self.predicted))
    rows = np.pad(
      self.predicted[:phase], [(0, missing), (0, 0)], constant_values=UNSEEN
    )
    return Predictions(self.labels, rows)

  def add(self, classes: int, predicted: np.ndarray) -> Predictions:
    """With one more phase.

    Args:
      classes: number of classes seen.
      predicted: int [m], for the test images of these classes.
    """
    row = np.full(len(self.labels), UNSEEN, np.uint16)
    row[self.labels < classes] = predicted
    return Predictions(self.labels, np.vstack([self.predicted, row]))

  def right(self, phase: int) -> np.ndarray:
    """Whether each image of a class seen by then is right: bool [m]."""
    row = self.predicted[phase]
    seen = row != UNSEEN
    return row[seen] == self.labels[seen]

  def write(self, folder: pathlib.Path) -> None:
    """Writes them into the folder of a run, atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, labels=self.labels, predicted=self.predicted)
    files.write_bytes(folder / FILE, buffer.getvalue())


def read_predictions(folder: pathlib.Path) -> Predictions | None:
  """The predictions of a run; None if there are none.

  Raises:
    UserError: if the file is damaged.
  """
  path = folder / FILE
  if not path.is_file():
    return None
  try:
    with np.load(path) as arrays:
      labels, predicted = arrays["labels"], arrays["predicted"]
    if (
      labels.dtype != np.uint16
      or predicted.dtype != np.uint16
      or predicted.shape != (len(predicted), *labels.shape)
      or labels.ndim != 1
    ):
      raise ValueError("another shape")
  except (
    *(OSError, ValueError, EOFError, KeyError, TypeError, IndexError),
    *(BadZipFile, zlib.error, RuntimeError, MemoryError),
  ) as error:
    raise UserError(
      f"{path} is damaged: restore it from a copy, or remove it."
    ) from error
  return Predictions(labels, predicted)
