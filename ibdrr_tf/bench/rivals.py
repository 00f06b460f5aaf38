"""Other people's lossless coders, on our codes.

Each is a pair of functions, planes to strings and back, so that all are timed
and checked in the same way. What is not installed is left out, and said.
"""

import importlib.util
import lzma
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ibdrr_tf.codec.lossless import static

__all__ = [
  "Coder",
  "constriction_coder",
  "file_coders",
  "is_installed",
  "missing",
  "plain",
]

# Packages of the extra [test], and what is missing without them.
_OPTIONAL = {
  "constriction": "there is no row of its ANS coder",
  "zstandard": "there is no row of zstd",
}
_XZ = {
  "format": lzma.FORMAT_XZ,
  "filters": [
    # Neighbouring bytes say little about a code: contexts of LZMA's literals
    # and positions only dilute its statistics.
    {"id": lzma.FILTER_LZMA2, "preset": 9, "lc": 0, "lp": 0, "pb": 0}
  ],
}
_ZSTD_LEVEL = 19


class Coder(NamedTuple):
  """A lossless coder.

  Attributes:
    compress: arrays of codes to strings; those of the other coders here are one
      array, int32 [n, h, w, planes], and one string.
    decompress: strings to the same arrays.
  """

  compress: Callable[..., list[bytes]]
  decompress: Callable[[list[bytes]], tuple[np.ndarray, ...]]


def missing() -> list[str]:
  """A sentence for each package that is not installed."""
  return [
    f"{name} is not installed, so {lacks}: pip install {name}."
    for name, lacks in _OPTIONAL.items()
    if not is_installed(name)
  ]


def plain(shape: tuple[int, ...], codes: int) -> Coder:
  """As many bits a code as a codebook's largest number has: 9 for 512 codes.

  Args:
    shape: (n, h, w, planes).
    codes: size of every codebook.
  """
  return Coder(
    lambda planes: [static.pack_plainly(planes, codes)],
    lambda strings: (static.unpack_plainly(strings[0], shape, codes),),
  )


def file_coders(shape: tuple[int, ...], codes: int) -> dict[str, Coder]:
  """What one would do with a file of codes: xz and, if installed, zstd.

  They see bytes, so codes are given as a file of their low bytes, followed by
  the bits above these. Of five ways this was the best for both on CIFAR-100:
  16-bit numbers cost xz 8.9 bits a code and zstd 9.8, 9-bit ones 9.0 and 8.9.

  Args:
    shape: (n, h, w, planes).
    codes: size of every codebook.
  """
  coders = {
    "xz": _on_bytes(
      lambda data: lzma.compress(data, **_XZ), lzma.decompress, shape, codes
    )
  }
  if is_installed("zstandard"):
    import zstandard

    coders["zstd"] = _on_bytes(
      zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress,
      zstandard.ZstdDecompressor().decompress,
      shape,
      codes,
    )
  return coders


def constriction_coder(
  tables: np.ndarray, shape: tuple[int, ...]
) -> Coder | None:
  """The ANS coder of constriction with the tables of a `StaticCoder`.

  Args:
    tables: int [positions, planes, codes + 1], cumulative.
    shape: (n, h, w, planes).

  Returns:
    None if constriction is not installed.
  """
  if not is_installed("constriction"):
    return None
  import constriction

  positions, number = tables.shape[:2]
  shares = np.diff(tables, axis=-1).reshape(positions * number, -1)
  shares = (shares / tables[0, 0, -1]).astype(np.float32)
  # A vector of codes with one model is what constriction codes fastest.
  models = [
    constriction.stream.model.Categorical(share, perfect=False)
    for share in shares
  ]

  def compress(planes: np.ndarray) -> list[bytes]:
    columns = planes.reshape(-1, len(models)).T.astype(np.int32)
    coder = constriction.stream.stack.AnsCoder()
    pairs = list(zip(columns, models, strict=True))
    for column, model in reversed(pairs):  # It is a stack.
      coder.encode_reverse(np.ascontiguousarray(column), model)
    return [coder.get_compressed().tobytes()]

  def decompress(strings: list[bytes]) -> tuple[np.ndarray]:
    words = np.frombuffer(strings[0], np.uint32)
    coder = constriction.stream.stack.AnsCoder(words)
    count = int(np.prod(shape)) // len(models)
    columns = [coder.decode(model, count) for model in models]
    return (np.stack(columns, axis=-1).reshape(shape),)

  return Coder(compress, decompress)


def _on_bytes(
  compress: Callable[[bytes], bytes],
  decompress: Callable[[bytes], bytes],
  shape: tuple[int, ...],
  codes: int,
) -> Coder:
  """A coder of bytes as one of planes."""
  count = int(np.prod(shape))
  above = (codes + 255) >> 8

  def to_string(planes: np.ndarray) -> list[bytes]:
    low = (planes & 255).astype(np.uint8).tobytes()
    return [compress(low + static.pack_plainly(planes >> 8, above))]

  def from_string(strings: list[bytes]) -> tuple[np.ndarray]:
    data = decompress(strings[0])
    low = np.frombuffer(data[:count], np.uint8).reshape(shape)
    high = static.unpack_plainly(data[count:], shape, above)
    return (high << 8 | low,)

  return Coder(to_string, from_string)


def is_installed(package: str) -> bool:
  """Whether a package can be imported."""
  return importlib.util.find_spec(package) is not None
