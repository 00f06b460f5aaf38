"""Copies of old networks, kept because the next phase learns from them."""

import pathlib
from zipfile import BadZipFile

import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.errors import UserError

__all__ = ["NetworkStore"]


class NetworkStore:
  """The weights of the network of the last phase, as float32, in one file.

  Writing a phase's file removes those of earlier phases: a phase learns from
  the one before it alone. Damage is found by the checksums of the zip format.

  Args:
    directory: where the file is; it need not exist yet.
    name: what is kept, e.g. "network"; begins the file's name.
  """

  def __init__(self, directory: str | pathlib.Path, name: str):
    self._directory = pathlib.Path(directory)
    self._name = name

  def write(self, phase: int, weights: list[np.ndarray]) -> None:
    """Keeps what a model's `get_weights` gives, batch statistics included."""
    with files.replaced(self._path(phase)) as beside:
      # One vector: a zip entry for each weight would cost 250 bytes more.
      flat = [weight.ravel() for weight in weights]
      np.savez(beside, weights=np.concatenate(flat).astype(np.float32))
    for path in self._paths():
      if path != self._path(phase):
        path.unlink()

  def holds(self, phase: int) -> bool:
    """Whether the network of this very phase is kept."""
    return self._path(phase).exists()

  def read(self, phase: int, model: tf.keras.Model) -> None:
    """Gives a model, built as it was then, the weights of a phase."""
    path = self._path(phase)
    try:
      with np.load(path) as arrays:
        flat = arrays["weights"]
      shapes = [weight.shape for weight in model.weights]
      ends = np.cumsum([shape.num_elements() for shape in shapes])
      if ends[-1] != len(flat):
        raise ValueError(f"{len(flat)} weights where {ends[-1]} are expected")
      parts = np.split(flat, ends[:-1])
      model.set_weights(
        [part.reshape(s) for part, s in zip(parts, shapes, strict=True)]
      )
    except (OSError, ValueError, EOFError, KeyError, BadZipFile) as error:
      raise UserError(
        f"the kept {self._name} {path} is missing or damaged: restore it from "
        f"a copy, or start again in another --workdir."
      ) from error

  @property
  def stored_bytes(self) -> int:
    """Size of the file on disk."""
    return sum(path.stat().st_size for path in self._paths())

  def _path(self, phase: int) -> pathlib.Path:
    return self._directory / f"{self._name}-{phase:03d}.npz"

  def _paths(self) -> list[pathlib.Path]:
    return sorted(self._directory.glob(f"{self._name}-*.npz"))
