"""Networks on the disk: flat float32 weights in one `.npz` file each."""

import pathlib
import struct
import zlib
from zipfile import BadZipFile

import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.errors import UserError

__all__ = ["damaged", "read_network", "write_network"]


def write_network(path: pathlib.Path, weights: list[np.ndarray]) -> None:
  """Writes what a model's `get_weights` gives, batch statistics included."""
  with files.replaced(path) as beside:
    # One vector: a zip entry for each weight would cost 250 bytes more.
    flat = [np.zeros(0), *(weight.ravel() for weight in weights)]
    np.savez(beside, weights=np.concatenate(flat).astype(np.float32))


def read_network(path: pathlib.Path, model: tf.keras.Model) -> None:
  """Gives a model, built as it was then, the weights of a file.

  Raises:
    UserError: if the file is missing, damaged or of another model. The zip
      format's checksums find damage.
  """
  try:
    if not path.is_file():
      raise ValueError("nothing, a pipe, or a folder")
    shapes = [weight.shape for weight in model.weights]
    ends = np.cumsum([shape.num_elements() for shape in shapes])
    with np.load(path) as arrays:
      # Unpacked, it may have any size.
      if arrays.zip.getinfo("weights.npy").file_size > 8 * ends[-1] + 4096:
        raise ValueError("the file unpacks to too many bytes")
      flat = arrays["weights"]
    if flat.shape != (ends[-1],) or flat.dtype.kind != "f":
      raise ValueError(f"{len(flat)} weights where {ends[-1]} are expected")
    parts = np.split(flat, ends[:-1])
    model.set_weights(
      [part.reshape(s) for part, s in zip(parts, shapes, strict=True)]
    )
  except (
    *(OSError, ValueError, EOFError, KeyError, TypeError, AttributeError),
    *(BadZipFile, zlib.error, struct.error, RuntimeError, MemoryError),
  ) as error:
    raise damaged(path) from error


def damaged(path: pathlib.Path) -> UserError:
  """The error for a file that is not the network it should be."""
  return UserError(
    f"the kept network {path} is missing or damaged: restore it from a copy, "
    f"or start again in another folder."
  )
