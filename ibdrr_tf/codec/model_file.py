"""The container of stored models: small, versioned and checked.

    magic, 4 bytes | version u16 | header length u32 | header, JSON
    | body, deflated: all arrays one after the other | checksum, 8 bytes

All numbers are little-endian. The checksum is the beginning of the SHA-256 of
everything before it, and so also a model's fingerprint.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ibdrr_tf.errors import UserError

__all__ = ["Body", "fingerprint", "pack", "unpack"]

_PREFIX = struct.Struct("<4sHI")
_CHECKSUM = 8
# No model of this package is near it; a damaged file may not ask for more.
_MOST = 1 << 28


class Body:
  """The arrays of an opened file, in the order in which they were packed."""

  def __init__(self, data: bytes):
    self._data = data
    self._position = 0

  def take(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Reads the next array."""
    count = int(np.prod(shape))
    values = np.frombuffer(self._data, dtype, count, self._position)
    self._position += values.nbytes
    return values.reshape(shape)


def pack(
  magic: bytes,
  version: int,
  header: dict[str, Any],
  arrays: Sequence[np.ndarray],
) -> bytes:
  """Stores arrays; the same ones always give the same bytes."""
  text = json.dumps(header, sort_keys=True).encode()
  # Small integers crowd around zero and do not repeat: Huffman codes alone are
  # smaller than deflate's search for repetitions.
  packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
  body = b"".join(array.tobytes() for array in arrays)
  data = _PREFIX.pack(magic, version, len(text)) + text
  data += packer.compress(body) + packer.flush()
  return data + hashlib.sha256(data).digest()[:_CHECKSUM]


def unpack(
  data: bytes, magic: bytes, version: int, name: str
) -> tuple[dict[str, Any], Body]:
  """Opens what `pack` has stored.

  Args:
    data: the file's contents.
    magic: how it must begin.
    version: the newest that can be read.
    name: what it should be, for errors: "VQ-VAE".

  Raises:
    UserError: if it is something else, damaged, or of a newer version.
  """
  if len(data) < _PREFIX.size or not data.startswith(magic):
    raise UserError(
      f"this is not a stored {name}: it does not begin with {magic.decode()}."
    )
  _, found, length = _PREFIX.unpack_from(data)
  if found > version:
    raise UserError(
      f"the stored {name} has format version {found}, but this program reads "
      f"versions up to {version}: update ibdrr_tf."
    )
  content, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
  if hashlib.sha256(content).digest()[:_CHECKSUM] != checksum:
    raise UserError(
      f"the stored {name} is damaged: its checksum does not match its content; "
      f"restore it from a copy."
    )
  end = _PREFIX.size + length
  body = zlib.decompressobj().decompress(content[end:], _MOST)
  return json.loads(content[_PREFIX.size : end]), Body(body)


def fingerprint(data: bytes) -> bytes:
  """Eight bytes that tell this stored model from any other."""
  return data[-_CHECKSUM:]
