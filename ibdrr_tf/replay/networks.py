"""Networks on the disk: one `.npz` file each, in float32 or in 8 bits.

In 8 bits, every weight of a kernel is a whole number in -127..127 times the
scale of its output channel, a float32 number. Biases, batch statistics and
other vectors stay float32.
"""

import io
import pathlib
import struct
import zlib
from collections.abc import Sequence
from zipfile import BadZipFile

import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.errors import UserError

__all__ = [
  "damaged",
  "eight_bit_size",
  "pack",
  "read_arrays",
  "read_network",
  "unpack",
  "write_arrays",
  "write_network",
]

_LEVELS = 127
_MOST_BYTES = 1 << 26
# What a damaged file may raise.
_DAMAGES = (
  *(OSError, ValueError, EOFError, KeyError, TypeError, AttributeError),
  *(BadZipFile, zlib.error, struct.error, RuntimeError, MemoryError),
)


def pack(weights: Sequence[np.ndarray]) -> np.ndarray:
  """Weights in 8 bits: first all scales and vectors, then all kernels.

  Args:
    weights: float arrays; the last axis of a kernel is its output channel.

  Returns:
    uint8 [bytes].
  """
  floats, kernels = [], []
  for weight in weights:
    weight = np.asarray(weight, np.float32)
    if weight.ndim < 2:
      floats.append(weight.ravel())
      continue
    # A head may have no new classes: -1 would not tell a size.
    rows = weight.reshape(int(np.prod(weight.shape[:-1])), weight.shape[-1])
    scales = np.abs(rows).max(axis=0, initial=0) / np.float32(_LEVELS)
    levels = np.rint(rows / np.where(scales, scales, 1))
    floats.append(scales)
    kernels.append(levels.astype(np.int8).ravel())
  head = np.concatenate([np.zeros(0, np.float32), *floats]).astype("<f4")
  body = np.concatenate([np.zeros(0, np.int8), *kernels])
  return np.concatenate([head.view(np.uint8), body.view(np.uint8)])


def unpack(
  packed: np.ndarray, shapes: Sequence[tuple[int, ...]]
) -> list[np.ndarray]:
  """The weights that `pack` has stored, float32, of these shapes.

  Raises:
    ValueError: if the number of bytes is another one.
  """
  counts = [
    int(np.prod(shape)) if len(shape) < 2 else shape[-1] for shape in shapes
  ]
  kernel_counts = [int(np.prod(shape)) for shape in shapes if len(shape) > 1]
  start = 4 * sum(counts)
  if packed.dtype != np.uint8 or packed.shape != (start + sum(kernel_counts),):
    raise ValueError(f"{packed.size} bytes do not hold these weights")
  floats = packed[:start].view("<f4")
  levels = packed[start:].view(np.int8)
  weights = []
  for shape, count in zip(shapes, counts, strict=True):
    part, floats = floats[:count], floats[count:]
    if len(shape) > 1:
      size = int(np.prod(shape))
      kernel, levels = levels[:size].reshape(shape), levels[size:]
      part = kernel * part
    weights.append(part.reshape(shape).astype(np.float32))
  return weights


def eight_bit_size(weights: Sequence[np.ndarray]) -> int:
  """Bytes of the file that `write_network` makes of weights in 8 bits."""
  return len(_to_file(weights, "int8"))


def write_network(
  path: pathlib.Path, weights: Sequence[np.ndarray], stored: str = "float32"
) -> None:
  """Writes what a model's `get_weights` gives, batch statistics included.

  Args:
    path: the file.
    weights: of the model.
    stored: one of `choices.STORED`.
  """
  files.write_bytes(path, _to_file(weights, stored))


def _to_file(weights: Sequence[np.ndarray], stored: str) -> bytes:
  buffer = io.BytesIO()
  if stored == "int8":
    np.savez(buffer, packed=pack(weights))
  else:
    # One vector: a zip entry for each weight would cost 250 bytes more.
    flat = [np.zeros(0), *(weight.ravel() for weight in weights)]
    np.savez(buffer, weights=np.concatenate(flat).astype(np.float32))
  return buffer.getvalue()


def read_network(path: pathlib.Path, model: tf.keras.Model) -> None:
  """Gives a model, built as it was then, the weights of a file.

  Raises:
    UserError: if the file is missing, damaged or of another model. The zip
      format's checksums find damage.
  """
  try:
    if not path.is_file():
      raise ValueError("nothing, a pipe, or a folder")
    shapes = [tuple(weight.shape) for weight in model.weights]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    with np.load(path) as arrays:
      name = "packed" if "packed" in arrays.files else "weights"
      # Unpacked, it may have any size.
      if arrays.zip.getinfo(f"{name}.npy").file_size > 8 * ends[-1] + 4096:
        raise ValueError("the file unpacks to too many bytes")
      flat = arrays[name]
    if name == "packed":
      model.set_weights(unpack(flat, shapes))
      return
    if flat.shape != (ends[-1],) or flat.dtype.kind != "f":
      raise ValueError(f"{len(flat)} weights where {ends[-1]} are expected")
    parts = np.split(flat, ends[:-1])
    model.set_weights(
      [part.reshape(s) for part, s in zip(parts, shapes, strict=True)]
    )
  except _DAMAGES as error:
    raise damaged(path) from error


def write_arrays(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Writes small arrays, by name."""
  buffer = io.BytesIO()
  np.savez(buffer, **arrays)
  files.write_bytes(path, buffer.getvalue())


def read_arrays(path: pathlib.Path, name: str) -> np.ndarray:
  """One of the arrays of a file, as float32 numbers.

  Raises:
    UserError: if the file is missing or damaged.
  """
  try:
    with np.load(path) as arrays:
      if arrays.zip.getinfo(f"{name}.npy").file_size > _MOST_BYTES:
        raise ValueError("the file unpacks to too many bytes")
      return arrays[name].astype(np.float32)
  except _DAMAGES as error:
    raise damaged(path) from error


def damaged(path: pathlib.Path) -> UserError:
  """The error for a file that is not the network it should be."""
  return UserError(
    f"the kept network {path} is missing or damaged: restore it from a copy, "
    f"or start again in another folder."
  )
