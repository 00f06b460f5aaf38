"""The container of stored models: small, versioned and checked.

    magic, 4 bytes | version u16 | header length u32 | header, JSON
    | body, deflated: all arrays one after the other | checksum, 8 bytes

All numbers are little-endian. The checksum is the beginning of the SHA-256 of
everything before it, and so also a model's fingerprint.
"""

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ibdrr_tf.errors import UserError

__all__ = ["SEEDS", "Body", "check_config", "fingerprint", "pack", "unpack"]

# What a word of a configuration may be; see `check_config`.
Range = range | tuple | type[float]
# Seeds that JSON keeps exactly.
SEEDS = range(-(1 << 53), 1 << 53)

_PREFIX = struct.Struct("<4sHI")
_CHECKSUM = 8
# Huffman codes alone take at least a bit a byte.
_MOST_RATIO = 8


class Body:
  """The arrays of an opened file, in the order in which they were packed.

  Args:
    data: all of them.
    name: of what the file should be, for errors.
  """

  def __init__(self, data: bytes, name: str):
    self._data = data
    self._name = name
    self._position = 0

  def __len__(self) -> int:
    return len(self._data)

  def take(self, shape: Sequence[int], dtype: Any) -> np.ndarray:
    """Reads the next array.

    Raises:
      UserError: if it is not there.
    """
    shape = [int(side) for side in shape]
    self.check_holds(math.prod(shape) * np.dtype(dtype).itemsize)
    values = np.frombuffer(self._data, dtype, math.prod(shape), self._position)
    self._position += values.nbytes
    if values.dtype.kind == "f" and not np.isfinite(values).all():
      raise self.forged("it holds numbers that are not finite")
    return values.reshape(shape)

  def check_holds(self, count: int) -> None:
    """Refuses a file that has fewer than so many bytes left."""
    if count > len(self._data) - self._position:
      raise self.forged("its header describes more weights than it holds")

  def check_end(self) -> None:
    """Refuses a file of which bytes are left over."""
    if self._position != len(self._data):
      raise self.forged("it holds more than its header describes")

  def forged(self, reason: str) -> UserError:
    """The error of a file whose checksum is right and whose content is not."""
    return _forged(self._name, reason)


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
  start, end = _PREFIX.size, _PREFIX.size + length
  try:
    header = json.loads(content[start:end])
  except (ValueError, RecursionError) as error:
    raise _forged(name, "its header is not JSON") from error
  if not isinstance(header, dict):
    raise _forged(name, "its header is not a JSON object")
  return header, Body(_inflate(content[end:], name), name)


def check_config(
  config: Any,
  ranges: dict[str, Range],
  body: Body,
  needed: Sequence[str] = (),
) -> dict[str, Any]:
  """Refuses a configuration with unknown words or impossible values.

  Args:
    config: out of a header.
    ranges: what each word may be: whole numbers, all possible values, or
      `float` for any finite number.
    body: of the file.
    needed: words that must be there.

  Returns:
    The configuration.
  """
  if not isinstance(config, dict):
    raise body.forged("its header has no configuration")
  for word in needed:
    if word not in config:
      raise body.forged(f"its header does not say its {word}")
  for word, value in config.items():
    if word not in ranges:
      raise body.forged(f"its header has the unknown word {word!r:.40}")
    allowed = ranges[word]
    if allowed is float:
      is_right = type(value) in (int, float) and math.isfinite(value)
      wanted = "a number"
    elif isinstance(allowed, tuple):
      is_right = any(
        type(value) is type(one) and value == one for one in allowed
      )
      wanted = " or ".join(map(repr, allowed))
    else:
      is_right = type(value) is int and value in allowed
      wanted = f"a whole number from {allowed[0]} to {allowed[-1]}"
    if not is_right:
      raise body.forged(f"its {word} is {value!r:.40} instead of {wanted}")
  return config


def _inflate(data: bytes, name: str) -> bytes:
  unpacker = zlib.decompressobj()
  try:
    body = unpacker.decompress(data, _MOST_RATIO * len(data) + 1)
  except zlib.error as error:
    raise _forged(name, "its weights are not deflated") from error
  if not unpacker.eof or unpacker.unused_data:
    raise _forged(name, "its weights are cut off or followed by other bytes")
  return body


def _forged(name: str, reason: str) -> UserError:
  return UserError(
    f"the stored {name} cannot be used: {reason}; restore it from a copy."
  )


def fingerprint(data: bytes) -> bytes:
  """Eight bytes that tell this stored model from any other."""
  return data[-_CHECKSUM:]
