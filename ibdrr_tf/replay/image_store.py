"""Encoded images on the disk: one TFRecord file a step, one record a class."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from ibdrr_tf import files
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.manifest import REMEDY, MemoryFolder

__all__ = ["EncodedImages", "ImageStore", "file_bytes"]

_VERSION = 1
# Length and two checksums of each record.
_FRAME = 16
# In one file; the format that has most has a file for each class of a step.
_MOST_IMAGES = 1 << 24


@dataclasses.dataclass(frozen=True)
class EncodedImages:
  """Labelled images as the bytes of files, each of one image or of several.

  Attributes:
    images: n strings.
    labels: int32 [n].
    held_out: bool [n], whether a file's images only test; None if none do.
    counts: int32 [n], images in each file; None is one.
    side: n strings that are kept with them, such as logits; None is empty ones.
  """

  images: list[bytes]
  labels: np.ndarray
  held_out: np.ndarray | None = None
  counts: np.ndarray | None = None
  side: list[bytes] | None = None

  def __post_init__(self):
    number = len(self.labels)
    if self.held_out is None:
      object.__setattr__(self, "held_out", np.zeros(number, bool))
    if self.counts is None:
      object.__setattr__(self, "counts", np.ones(number, np.int32))
    if self.side is None:
      object.__setattr__(self, "side", [b""] * number)

  def __len__(self) -> int:
    return len(self.labels)

  def take(self, chosen: np.ndarray) -> "EncodedImages":
    """Some of the images: by indices, or by a mask."""
    numbers = np.arange(len(self))[chosen]
    return EncodedImages(
      [self.images[i] for i in numbers],
      self.labels[numbers],
      self.held_out[numbers],
      self.counts[numbers],
      [self.side[i] for i in numbers],
    )

  def bytes_by_label(self) -> dict[int, float]:
    """Mean bytes of an image of each class."""
    sizes = np.array(list(map(len, self.images)), np.float64)
    found = {}
    for label in np.unique(self.labels):
      mine = self.labels == label
      found[int(label)] = float(sizes[mine].sum() / self.counts[mine].sum())
    return found

  @staticmethod
  def join(parts: Sequence["EncodedImages"]) -> "EncodedImages":
    """Several sets, one after the other."""
    return EncodedImages(
      [image for part in parts for image in part.images],
      np.concatenate([part.labels for part in parts]).astype(np.int32),
      np.concatenate([part.held_out for part in parts]).astype(bool),
      np.concatenate([part.counts for part in parts]).astype(np.int32),
      [side for part in parts for side in part.side],
    )


class ImageStore:
  """Images of a memory that are kept as files: exemplars, WebP, JPEG, pixels.

  Its part of the manifest: `files`, sizes by name in the order of the images;
  `images`, and `payload`, the images' own bytes.

  Args:
    folder: of the memory.
    part: name of the part, which begins the names of its files.
  """

  def __init__(self, folder: MemoryFolder, part: str):
    self._folder = folder
    self.part = part

  @property
  def contents(self) -> dict[str, Any]:
    """Its part of the manifest in force; zeros before anything is kept."""
    nothing = {"files": {}, "images": 0, "payload": 0}
    return self._folder.part(self.part, nothing)

  def read(self) -> EncodedImages:
    """All images: by step, and within a step by class.

    Raises:
      UserError: naming the file, if one is missing or damaged.
    """
    contents = self.contents
    empty = EncodedImages([], np.zeros(0, np.int32))
    paths = [self._folder.path / name for name in contents["files"]]
    result = EncodedImages.join([empty, *map(_read_file, paths)])
    # A file cut off between two records has no other flaw than its size.
    if result.counts.sum() != contents["images"]:
      raise UserError(
        f"the memory {self._folder.path} does not hold what its manifest "
        f"describes: {REMEDY}."
      )
    return result

  def append(self, step: int, added: EncodedImages) -> dict[str, Any]:
    """Writes images of a step beside those that are there.

    Returns:
      The part of the manifest with which they count.
    """
    return (
      self._write(step, added, self.contents) if len(added) else (self.contents)
    )

  def replace(self, step: int, images: EncodedImages) -> dict[str, Any]:
    """Writes all images anew; see `append`."""
    return self._write(step, images, {"files": {}, "images": 0, "payload": 0})

  def _write(
    self, step: int, added: EncodedImages, before: dict[str, Any]
  ) -> dict[str, Any]:
    path = self._folder.new_file(self.part, step, "tfrecord")
    self._folder.team.on_chief(lambda: _write_file(path, added))
    return {
      "files": {**before["files"], path.name: path.stat().st_size},
      "images": before["images"] + int(added.counts.sum()),
      "payload": before["payload"] + sum(map(len, added.images)),
    }


def file_bytes(added: EncodedImages) -> int:
  """Size of the file of some images, before it is written."""
  return sum(_FRAME + len(record) for record in _records(added))


def _write_file(path: pathlib.Path, added: EncodedImages) -> None:
  with (
    files.replaced(path) as beside,
    tf.io.TFRecordWriter(str(beside)) as writer,
  ):
    for record in _records(added):
      writer.write(record)


def _records(added: EncodedImages):
  """One record for each class, and one for its images that only test."""
  for mark in (False, True):
    for label in np.unique(added.labels[added.held_out == mark]):
      chosen = (added.labels == label) & (added.held_out == mark)
      yield _to_record(int(label), mark, added.take(chosen))


def _to_record(label: int, held_out: bool, encoded: EncodedImages) -> bytes:
  files_ = tf.train.BytesList(value=encoded.images)
  feature = {
    "version": _int_feature(_VERSION),
    "label": _int_feature(label),
    "images": tf.train.Feature(bytes_list=files_),
  }
  if np.any(encoded.counts != 1):
    feature["counts"] = _int_feature(*encoded.counts)
  if any(encoded.side):
    sides = tf.train.BytesList(value=encoded.side)
    feature["side"] = tf.train.Feature(bytes_list=sides)
  if held_out:
    feature["held_out"] = _int_feature(1)
  example = tf.train.Example(features=tf.train.Features(feature=feature))
  return example.SerializeToString()


def _read_file(path: pathlib.Path) -> EncodedImages:
  encoded, labels, held_out, counts, side = [], [], [], [], []
  try:
    if not path.is_file():
      raise OSError("a pipe would block")
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      feature = tf.train.Example.FromString(record).features.feature
      if feature["version"].int64_list.value[0] != _VERSION:
        raise UserError(
          f"{path} was written by another version of ibdrr_tf: use that "
          f"version."
        )
      images = list(feature["images"].bytes_list.value)
      label = feature["label"].int64_list.value[0]
      if not 0 <= label <= np.iinfo(np.int32).max:
        raise IndexError(label)
      encoded += images
      labels += [label] * len(images)
      held_out += [bool(feature["held_out"].int64_list.value)] * len(images)
      of_each = list(feature["counts"].int64_list.value) or [1] * len(images)
      sides = list(feature["side"].bytes_list.value) or [b""] * len(images)
      if (
        len(of_each) != len(images)
        or len(sides) != len(images)
        or min(of_each, default=1) < 1
        or max(of_each, default=1) > _MOST_IMAGES
      ):
        raise IndexError(of_each)
      counts += of_each
      side += sides
  except (tf.errors.OpError, DecodeError, OSError, IndexError) as error:
    raise UserError(
      f"the memory file {path} is missing or damaged: {REMEDY}."
    ) from error
  return EncodedImages(
    encoded,
    np.array(labels, np.int32),
    np.array(held_out, bool),
    np.array(counts, np.int32),
    side,
  )


def _int_feature(*values: int) -> tf.train.Feature:
  return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
