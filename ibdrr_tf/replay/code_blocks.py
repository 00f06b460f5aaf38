"""Chains on the disk, each of which is read and decoded on its own.

    codes-000.tfrecord  │ chain │ chain │ chain │
    codes-001.tfrecord  │ chain │ chain │

A *block* is one chain with its labels. The index of all blocks keeps their
places in the files and the labels of their images; codes stay on the disk.
"""

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from ibdrr_tf.codec.lossless import chain
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.manifest import REMEDY

__all__ = ["CodeBlocks", "parse_record"]

# TFRecord: length u64, its checksum u32, data, their checksum u32.
_BEFORE, _AFTER = 12, 4
# Chains whose headers and checksums are checked at once.
_AT_ONCE = 64


@dataclasses.dataclass(frozen=True)
class _Place:
  """Where a record's data lies: its file, first byte and number of bytes."""

  path: pathlib.Path
  offset: int
  length: int


class CodeBlocks:
  """The index of all chains of some files.

  Args:
    paths: the files, in the order of their chains.
    codec: decodes the chains.

  Attributes:
    labels: int32 [n], of all images on the disk, in order.
    held_out: bool [n], whether an image only tests.
    counts: int64 [blocks], images in each block.
    failure: the error of a block that could not be read in a graph, whose own
      errors lose their type.

  Raises:
    UserError: naming the file, if one is missing or damaged.
  """

  def __init__(self, paths: Sequence[pathlib.Path], codec: CodeCodec):
    self._codec = codec
    self._places: list[_Place] = []
    self.failure: UserError | None = None
    self._sizes: list[int] = []
    counts = []
    columns = [[np.zeros(0, np.int32)], [np.zeros(0, bool)]]
    for path in paths:
      for places, chains, marks in _scan(path):
        images = self._images_of(path, chains)
        if images != [len(labels) for labels, _ in marks]:
          raise _damaged(path)
        self._places += places
        self._sizes += map(len, chains)
        counts += images
        for column, values in zip(
          columns, zip(*marks, strict=True), strict=True
        ):
          column += values
    self.counts = np.array(counts, np.int64)
    self.labels, self.held_out = map(np.concatenate, columns)
    self._starts = np.cumsum(self.counts) - self.counts

  def __len__(self) -> int:
    return len(self._places)

  @property
  def payload(self) -> int:
    """Bytes of all chains."""
    return sum(self._sizes)

  @property
  def chain_images(self) -> int:
    """Images in a full chain."""
    return self._codec.chain_images

  def rows(self, number: int) -> slice:
    """The images of a block, as a part of `labels` and `held_out`."""
    start = int(self._starts[number])
    return slice(start, start + int(self.counts[number]))

  def read(self, number: int) -> bytes:
    """Reads the chain of a block and verifies its checksum.

    Raises:
      UserError: naming the file, if it is missing or damaged.
    """
    place = self._places[number]
    try:
      with open(place.path, "rb") as file:
        data = os.pread(file.fileno(), place.length, place.offset)
      string, _, _ = parse_record(data)
    except (OSError, DecodeError, IndexError, ValueError) as error:
      raise _damaged(place.path) from error
    if self._images_of(place.path, [string]) != [self.counts[number]]:
      raise _damaged(place.path)
    return string

  def read_in_graph(self, number: tf.Tensor) -> tf.Tensor:
    """The chain of a block, string []; see `failure`."""

    def read(number: np.ndarray) -> bytes:
      try:
        return self.read(int(number))
      except UserError as error:
        self.failure = error
        raise

    return tf.ensure_shape(tf.numpy_function(read, [number], tf.string), [])

  def decode(self, string: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Codes of a chain, int16 [n, h, w, depth] of each level, in a graph."""
    levels = self._codec.decode_chains(string[tf.newaxis])
    return tuple(tf.cast(level, tf.int16) for level in levels)

  def codes(self, number: int) -> Codes:
    """Reads and decodes one block."""
    rows = self.rows(number)
    levels = self._codec.decompress([self.read(number)])
    top, bottom = (level.astype(np.int16) for level in levels)
    return Codes(top, bottom, self.labels[rows], self.held_out[rows])

  def take(self, chosen: np.ndarray) -> Codes:
    """Codes of some images; decodes only the chains that hold them.

    Args:
      chosen: int64 [m] indices of images, sorted, at least one.
    """
    parts = []
    for number in range(len(self)):
      rows = self.rows(number)
      mine = chosen[(chosen >= rows.start) & (chosen < rows.stop)]
      if len(mine):
        parts.append(self.codes(number).take(mine - rows.start))
    return Codes.join(parts)

  def bytes_by_label(self) -> dict[int, float]:
    """Mean bytes of an image of each class: its share of the chain it is in."""
    each = np.repeat(np.array(self._sizes) / self.counts, self.counts)
    totals = np.bincount(self.labels, weights=each)
    numbers = np.bincount(self.labels)
    return {
      int(label): float(totals[label] / numbers[label])
      for label in np.flatnonzero(numbers)
    }

  def held_out_codes(self) -> Codes | None:
    """Codes of images that only test; decodes only chains that have some."""
    parts = []
    for number in range(len(self)):
      if self.held_out[self.rows(number)].any():
        codes = self.codes(number)
        parts.append(codes.take(codes.held_out))
    return Codes.join(parts) if parts else None

  def _images_of(self, path: pathlib.Path, chains: list[bytes]) -> list[int]:
    """Images in each of some neighbours, from their verified headers."""
    try:
      return self._codec.shapes(chains)[:, 0].tolist()
    except UserError as error:
      raise UserError(f"in the memory file {path}, {error}") from error


def _scan(
  path: pathlib.Path,
) -> Iterator[tuple[list[_Place], list[bytes], list[tuple]]]:
  """Places, chains, and (labels, marks) of a file's records, some at once."""
  position, found = 0, ([], [], [])
  try:
    if not path.is_file():
      raise OSError("a pipe would block")
    # TensorFlow's reader verifies the checksums of each record.
    for data in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      string, labels, marks = parse_record(data)
      place = _Place(path, position + _BEFORE, len(data))
      position += _BEFORE + len(data) + _AFTER
      for column, value in zip(
        found, (place, string, (labels, marks)), strict=True
      ):
        column.append(value)
      if len(found[0]) == _AT_ONCE:
        yield found
        found = ([], [], [])
    if position != path.stat().st_size:
      raise _damaged(path)
  except (
    tf.errors.OpError,
    DecodeError,
    OSError,
    IndexError,
    ValueError,
  ) as error:
    raise _damaged(path) from error
  if found[0]:
    yield found


def parse_record(data: bytes) -> tuple[bytes, np.ndarray, np.ndarray]:
  """Chain, labels int32 [n] and marks bool [n] of a record.

  Raises:
    DecodeError, IndexError, ValueError: if it is damaged.
  """
  feature = tf.train.Example.FromString(data).features.feature
  string = feature["chain"].bytes_list.value[0]
  values, lengths, marks = (
    np.array(feature[name].int64_list.value, np.int64)
    for name in ("labels", "lengths", "held_out")
  )
  marks = marks if len(marks) else np.zeros_like(values)
  if not len(values) == len(lengths) == len(marks):
    raise ValueError("a record has labels without a number")
  # Before they are repeated: a length may ask for any memory. As Python's
  # integers, whose sum cannot overflow.
  if (lengths < 1).any() or sum(lengths.tolist()) != chain.declared_images(
    string
  ):
    raise ValueError("a record has other images than its chain")
  if ((values < 0) | (values > np.iinfo(np.int32).max)).any():
    raise ValueError("a record has impossible labels")
  return (
    string,
    np.repeat(values, lengths).astype(np.int32),
    np.repeat(marks, lengths).astype(bool),
  )


def _damaged(path: pathlib.Path) -> UserError:
  return UserError(f"the memory file {path} is missing or damaged: {REMEDY}.")
