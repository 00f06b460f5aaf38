"""Archives: compressed images of any sizes in one file, `.ibdrr`.

    magic "IBDRR" | version u8 | fingerprint of the VQ-VAE, 8 bytes
    | bytes of the index u32, packed and unpacked | checksum of the index and
    all before it, 8 bytes | index, deflated JSON | chains | checksum of the
    whole file, 8 bytes

Numbers are little-endian; checksums are beginnings of SHA-256. Images whose
codes have the same grid are a *group*: groups stand in the order in which their
first image does, the images of a group in their own order. The index has names
and sizes of the images, so it says where each one is; the chains say the rest
and check themselves (see `chain`).

Nothing here needs TensorFlow: what an archive holds can be told at once.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import pathlib
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from ibdrr_tf.errors import UserError

__all__ = [
  "Archive",
  "Group",
  "check_index",
  "grid_of",
  "group_by_grid",
  "pack",
  "unpack",
]

_MAGIC = b"IBDRR"
_VERSION = 1
_PREFIX = struct.Struct("<5sB8sII")
_CHECKSUM = 8
# Pixels of an image for each place of the top level's grid.
_STRIDE = 8
# An index beyond these is no archive's: 64 MB of names and sizes, and images
# with a side of 2^19 pixels.
_MOST_INDEX = 1 << 26
_MOST_SIDE = 8 * ((1 << 16) - 1)
# An index may unpack to so many bytes, and so many more for each byte of the
# file; likewise images. Chains of a thousand images have 35 bytes and more.
_FREE_INDEX, _INDEX_RATIO = 1 << 20, 64
_FREE_IMAGES, _IMAGE_RATIO = 1 << 16, 32
# What file systems hold.
_MOST_NAME, _MOST_PART, _MOST_LEVELS = 4096, 255, 255


@dataclasses.dataclass(frozen=True)
class Group:
  """Images whose codes have one grid.

  Attributes:
    grid: height and width of the top level.
    members: numbers of the images, rising.
  """

  grid: tuple[int, int]
  members: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Archive:
  """What an archive holds.

  Attributes:
    fingerprint: of the VQ-VAE, eight bytes.
    depths: stages of the top and the bottom level.
    sizes: height and width of each image.
    names: of each image, with folders; None if they came in an array.
    chains: for each group (see `group_by_grid`), its chains.
  """

  fingerprint: bytes
  depths: tuple[int, int]
  sizes: tuple[tuple[int, int], ...]
  names: tuple[str, ...] | None
  chains: tuple[tuple[bytes, ...], ...]

  @property
  def codes(self) -> int:
    """Number of codes of all images."""
    return self.codes_of(sum(h * w for h, w in map(grid_of, self.sizes)))

  def codes_of(self, places: int) -> int:
    """Number of codes at so many places of the top level's grid."""
    return places * (self.depths[0] + 4 * self.depths[1])

  @property
  def pixels(self) -> int:
    """Number of pixels of all images."""
    return sum(height * width for height, width in self.sizes)


def grid_of(size: tuple[int, int]) -> tuple[int, int]:
  """The top level's grid for an image of that height and width."""
  return -(-size[0] // _STRIDE), -(-size[1] // _STRIDE)


def group_by_grid(sizes: tuple[tuple[int, int], ...]) -> list[Group]:
  """Finds the groups of images of these sizes, in order."""
  members: dict[tuple[int, int], list[int]] = {}
  for number, size in enumerate(sizes):
    members.setdefault(grid_of(size), []).append(number)
  return [Group(grid, tuple(numbers)) for grid, numbers in members.items()]


def check_index(
  sizes: Sequence[tuple[int, int]], names: Sequence[str] | None
) -> None:
  """Refuses, before any work, images that an archive could not list.

  Args:
    sizes: height and width of each.
    names: of each, or None.

  Raises:
    UserError: naming the image, if its name is the reason.
  """
  for name in names or ():
    try:
      if _safe(name) != name:
        raise ValueError
    except ValueError as error:
      raise UserError(
        f"the image {name[:200]!r} has a name that an archive cannot hold (a "
        f"backslash, bytes that are no UTF-8, or too many of them): rename it."
      ) from error
  archive = Archive(bytes(8), (1, 1), tuple(sizes), names and tuple(names), ())
  _index_text(archive)


def pack(archive: Archive) -> bytes:
  """The bytes of a file; the same archive always gives the same."""
  text = _index_text(archive)
  packed = zlib.compress(text, 9)
  data = _PREFIX.pack(
    _MAGIC, _VERSION, archive.fingerprint, len(packed), len(text)
  )
  data += _digest(data + packed) + packed
  data += b"".join(chain for chains in archive.chains for chain in chains)
  return data + _digest(data)


def _index_text(archive: Archive) -> bytes:
  """The index as JSON."""
  kinds = list(dict.fromkeys(archive.sizes))
  number_of = {size: number for number, size in enumerate(kinds)}
  index = {
    "depths": archive.depths,
    "images": len(archive.sizes),
    "sizes": kinds,
    "names": archive.names,
    "chains": [[len(c) for c in chains] for chains in archive.chains],
  }
  if len(kinds) > 1:
    index["size_of"] = [number_of[size] for size in archive.sizes]
  text = json.dumps(index, separators=(",", ":"), ensure_ascii=False).encode()
  if len(text) > _MOST_INDEX:
    raise UserError(
      f"{len(archive.sizes)} images are too many for one archive: its index "
      f"would have {len(text)} bytes, {_MOST_INDEX} are the most; compress "
      f"them in parts."
    )
  return text


def unpack(data: bytes, name: str) -> Archive:
  """Opens the bytes of a file.

  Args:
    data: all of them.
    name: of the file, for errors.

  Raises:
    UserError: if it is something else, damaged, cut off, or of a newer version.
  """
  if not data.startswith(_MAGIC):
    raise UserError(
      f"{name} is no archive of this program: it does not begin with "
      f"{_MAGIC.decode()}; give a file that compress has written."
    )
  if len(data) > len(_MAGIC) and data[len(_MAGIC)] > _VERSION:
    raise UserError(
      f"{name} has format version {data[len(_MAGIC)]}, but this program reads "
      f"versions up to {_VERSION}: update ibdrr_tf."
    )
  start = _PREFIX.size + _CHECKSUM
  if len(data) < start:
    raise _cut_off(name)
  _, _, fingerprint, packed, unpacked = _PREFIX.unpack_from(data)
  end = start + packed
  # The index is checked before its numbers are believed.
  if end > len(data) - _CHECKSUM:
    raise _cut_off(name)
  checked = data[: _PREFIX.size] + data[start:end]
  if _digest(checked) != data[_PREFIX.size : start]:
    raise _damaged(name)
  if _digest(data[:-_CHECKSUM]) != data[-_CHECKSUM:]:
    raise _damaged(name)
  most = min(_MOST_INDEX, _FREE_INDEX + _INDEX_RATIO * len(data))
  if unpacked > most:
    raise _forged(name)
  try:
    text = zlib.decompressobj().decompress(data[start:end], unpacked + 1)
    if len(text) != unpacked:
      raise ValueError("the index has another length")
    return _read_index(json.loads(text), fingerprint, data[end:-_CHECKSUM])
  except (ValueError, KeyError, TypeError, zlib.error, RecursionError) as error:
    raise _forged(name) from error


def _read_index(
  index: dict[str, Any], fingerprint: bytes, body: bytes
) -> Archive:
  """Makes an archive of its parts; raises ValueError where they disagree."""
  kinds = [
    (_whole(h, _MOST_SIDE), _whole(w, _MOST_SIDE)) for h, w in index["sizes"]
  ]
  images = _whole(index["images"], _FREE_IMAGES + _IMAGE_RATIO * len(body))
  size_of = index.get("size_of", itertools.repeat(0, images))
  sizes = tuple(kinds[_whole(k, len(kinds) - 1, least=0)] for k in size_of)
  names = index["names"]
  if names is not None:
    if not isinstance(names, list):
      raise ValueError("names must be a list")
    names = tuple(_safe(name) for name in names)
    if not len(set(names)) == len(names) == images:
      raise ValueError("names are missing or double")
  groups = group_by_grid(sizes)
  if len(sizes) != images or len(groups) != len(index["chains"]):
    raise ValueError("sizes or chains are missing")
  chains, place = [], 0
  for lengths in index["chains"]:
    chains.append([])
    for length in lengths:
      stop = place + _whole(length, len(body) - place)
      chains[-1].append(body[place:stop])
      place = stop
  if place != len(body):
    raise ValueError("there are bytes left over")
  top, bottom = index["depths"]
  depths = (_whole(top, 255, least=0), _whole(bottom, 255))
  return Archive(fingerprint, depths, sizes, names, tuple(map(tuple, chains)))


def _whole(value: Any, most: int, least: int = 1) -> int:
  if type(value) is not int or not least <= value <= most:
    raise ValueError(f"{value!r} is no number from {least} to {most}")
  return value


def _safe(name: Any) -> str:
  """Refuses names that would be written outside the folder asked for."""
  path = pathlib.PurePosixPath(name)
  if path.is_absolute() or ".." in path.parts or not path.parts:
    raise ValueError(f"{name!r} is no name of an image")
  if "\0" in name or "\\" in name:
    raise ValueError(f"{name!r} is no name of an image")
  lengths = [len(part.encode()) for part in path.parts]
  if (
    len(lengths) > _MOST_LEVELS
    or max(lengths) > _MOST_PART
    or sum(lengths) + len(lengths) > _MOST_NAME
  ):
    raise ValueError("a name is longer than file systems hold")
  return str(path)


def _digest(data: bytes) -> bytes:
  return hashlib.sha256(data).digest()[:_CHECKSUM]


def _cut_off(name: str) -> UserError:
  return UserError(f"{name} is damaged: it is cut off; restore it from a copy.")


def _forged(name: str) -> UserError:
  return UserError(
    f"{name} is damaged or forged: its index does not describe what follows "
    f"it; restore it from a copy."
  )


def _damaged(name: str) -> UserError:
  return UserError(
    f"{name} is damaged or cut off: its checksum does not match its contents; "
    f"restore it from a copy."
  )
