"""Encoded images in TFRecord files: one record a class."""

import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from ibdrr_tf import files
from ibdrr_tf.errors import UserError

__all__ = ["file_bytes", "read", "write"]

_VERSION = 1
# Length and two checksums of each record.
_FRAME = 16


def write(
  path: pathlib.Path, encoded: Sequence[bytes], labels: np.ndarray
) -> None:
  """Writes images, atomically, in the order of their labels.

  Args:
    path: the file to write or replace.
    encoded: images in any format.
    labels: int [n].
  """
  with (
    files.replaced(path) as beside,
    tf.io.TFRecordWriter(str(beside)) as writer,
  ):
    for label in np.unique(labels):
      members = [encoded[i] for i in np.flatnonzero(labels == label)]
      writer.write(_to_record(int(label), members))


def read(
  paths: Sequence[pathlib.Path], boundaries: Sequence[int]
) -> tuple[list[bytes], np.ndarray]:
  """Reads the images of some files, in order.

  Args:
    paths: one for each phase, from the first on.
    boundaries: classes seen after each phase, of which there may be more. A
      file that was cut off between two records has no other flaw than that
      classes are missing.

  Returns:
    Encoded images, and their labels, int32 [n].
  """
  encoded, labels = [], []
  starts = [0, *boundaries]
  for number, path in enumerate(paths):
    classes = _read_file(path)
    wanted = range(starts[number], starts[number + 1])
    if [label for label, _ in classes] != list(wanted):
      raise _damaged(path)
    for label, images in classes:
      encoded += images
      labels += [label] * len(images)
  return encoded, np.array(labels, np.int32)


def file_bytes(sizes_by_label: dict[int, Sequence[int]]) -> int:
  """Size of a file, before it is written.

  Args:
    sizes_by_label: bytes of each encoded image of a class, by its label.
  """
  return sum(
    _FRAME + len(_to_record(label, [bytes(size) for size in sizes]))
    for label, sizes in sizes_by_label.items()
  )


def _to_record(label: int, encoded: Sequence[bytes]) -> bytes:
  feature = {
    "version": _int_feature(_VERSION),
    "label": _int_feature(label),
    "images": tf.train.Feature(bytes_list=tf.train.BytesList(value=encoded)),
  }
  example = tf.train.Example(features=tf.train.Features(feature=feature))
  return example.SerializeToString()


def _read_file(path: pathlib.Path) -> list[tuple[int, list[bytes]]]:
  """Reads (label, images) of each class in a file."""
  classes = []
  try:
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      feature = tf.train.Example.FromString(record).features.feature
      if feature["version"].int64_list.value[0] != _VERSION:
        raise UserError(
          f"{path} was written by another version of ibdrr_tf: use that "
          f"version, or start again in another --workdir."
        )
      label = feature["label"].int64_list.value[0]
      classes.append((label, list(feature["images"].bytes_list.value)))
  except (tf.errors.OpError, DecodeError, OSError, IndexError) as error:
    raise _damaged(path) from error
  return classes


def _damaged(path: pathlib.Path) -> UserError:
  return UserError(
    f"the image file {path} is missing or damaged: restore it from a copy, or "
    f"start again in another --workdir."
  )


def _int_feature(value: int) -> tf.train.Feature:
  return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
