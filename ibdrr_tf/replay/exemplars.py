"""Raw images kept of old classes, losslessly compressed, in TFRecord files."""

import io
import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from PIL import Image

from ibdrr_tf import files
from ibdrr_tf.errors import UserError

__all__ = ["ExemplarStore"]

_VERSION = 1


class ExemplarStore:
  """A folder of raw exemplars: one file a phase, one record a class.

  Each record is a `tf.train.Example` with the label and the images of a class
  as lossless WebP, which needs about a fifth less than PNG for images of 32
  pixels. TFRecord adds a checksum to every record. A phase's file is written
  atomically, and writing it again replaces it, so a phase may be repeated.

  Args:
    directory: where the files are; it need not exist yet.
  """

  def __init__(self, directory: str | pathlib.Path):
    self._directory = pathlib.Path(directory)

  def write(self, phase: int, images: np.ndarray, labels: np.ndarray) -> None:
    """Keeps the exemplars of a phase.

    Args:
      phase: replaces what was kept for this phase.
      images: uint8 [n, h, w, 3].
      labels: int [n].
    """
    with (
      files.replaced(self._path(phase)) as beside,
      tf.io.TFRecordWriter(str(beside)) as writer,
    ):
      for label in np.unique(labels):
        writer.write(_to_record(int(label), images[labels == label]))

  def read(self, phase: int) -> tuple[np.ndarray, np.ndarray]:
    """Reads the exemplars of all phases up to and including one.

    Returns:
      images uint8 [n, h, w, 3] and labels int32 [n], ordered by phase and
      label; n may be 0 when no exemplar was ever kept.
    """
    images, labels = [], []
    for earlier in range(phase + 1):
      for label, image_list in _read_file(self._path(earlier)):
        images += image_list
        labels += [label] * len(image_list)
    return np.array(images, np.uint8), np.array(labels, np.int32)

  @property
  def stored_bytes(self) -> int:
    """Size of the files on disk."""
    return sum(path.stat().st_size for path in self._paths())

  def _path(self, phase: int) -> pathlib.Path:
    return self._directory / f"exemplars-{phase:03d}.tfrecord"

  def _paths(self) -> list[pathlib.Path]:
    return sorted(self._directory.glob("exemplars-*.tfrecord"))


def _to_record(label: int, images: np.ndarray) -> bytes:
  feature = {
    "version": _int_feature(_VERSION),
    "label": _int_feature(label),
    "images": tf.train.Feature(
      bytes_list=tf.train.BytesList(value=[_to_webp(i) for i in images])
    ),
  }
  example = tf.train.Example(features=tf.train.Features(feature=feature))
  return example.SerializeToString()


def _read_file(path: pathlib.Path) -> list[tuple[int, list[np.ndarray]]]:
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
      encoded = feature["images"].bytes_list.value
      classes.append((label, [_from_webp(image) for image in encoded]))
  except (tf.errors.OpError, DecodeError, OSError, IndexError) as error:
    raise UserError(
      f"the exemplar file {path} is missing or damaged: restore it from a "
      f"copy, or start again in another --workdir."
    ) from error
  return classes


def _int_feature(value: int) -> tf.train.Feature:
  return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))


def _to_webp(image: np.ndarray) -> bytes:
  buffer = io.BytesIO()
  Image.fromarray(image).save(buffer, "WEBP", lossless=True, quality=100)
  return buffer.getvalue()


def _from_webp(data: bytes) -> np.ndarray:
  with Image.open(io.BytesIO(data)) as image:
    return np.asarray(image.convert("RGB"))
