"""Encoded images on the disk: by step and class, and named when damaged."""

import os

import numpy as np
import pytest
from tiny_step import files_in

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.image_store import EncodedImages, ImageStore, file_bytes
from ibdrr_tf.replay.manifest import MemoryFolder


def encoded(*sizes, labels, held_out=None):
  """Strings of some sizes, each of other bytes."""
  return EncodedImages(
    [bytes([17 * n % 256]) * size for n, size in enumerate(sizes)],
    np.array(labels, np.int32),
    None if held_out is None else np.array(held_out, bool),
  )


class Store(ImageStore):
  """A store that commits what it writes at once."""

  def __init__(self, path):
    self.folder = MemoryFolder(path)
    super().__init__(self.folder, "webp")

  def keep(self, step, images, *, adds=True):
    write = self.append if adds else self.replace
    self.folder.write(step, {"webp": write(step, images)})


def test_images_come_back_by_step_and_label(tmp_path):
  store = Store(tmp_path / "memory")
  assert len(store.read()) == 0
  first = encoded(5, 6, 7, 8, labels=[1, 0, 1, 0])
  second = encoded(9, 4, 3, labels=[2, 0, 2])
  store.keep(0, first)
  store.keep(1, second)
  got = Store(tmp_path / "memory").read()
  assert got.labels.tolist() == [0, 0, 1, 1, 0, 2, 2]
  want = first.take(np.array([1, 3, 0, 2])).images
  want += second.take(np.array([1, 0, 2])).images
  assert got.images == want
  assert not got.held_out.any()
  contents = store.contents
  assert contents["images"] == 7
  assert contents["payload"] == sum(map(len, want))


def test_marks_of_held_out_images_survive(tmp_path):
  store = Store(tmp_path)
  images = encoded(
    5, 6, 7, 8, 9, labels=[1, 0, 1, 0, 1], held_out=[0, 1, 1, 0, 0]
  )
  store.keep(0, images)
  store.keep(1, images.take(images.held_out))
  got = Store(tmp_path).read()
  assert got.labels.tolist() == [0, 1, 1, 0, 1, 0, 1]
  assert got.held_out.tolist() == [0, 0, 0, 1, 1, 1, 1]
  assert got.images[3:5] == images.take(np.array([1, 2])).images


def test_appending_rewrites_no_old_file_and_replacing_all_of_them(tmp_path):
  store = Store(tmp_path)
  store.keep(0, encoded(5, labels=[0]))
  before = files_in(tmp_path)
  old = tmp_path / "webp-000.tfrecord"
  os.utime(old, ns=(1, 1))
  store.keep(1, encoded(6, labels=[0]))
  store.folder.settle()
  assert old.read_bytes() == before[old.name]
  assert old.stat().st_mtime_ns == 1
  # Nothing more leaves the files as they are.
  store.keep(2, encoded(labels=[]))
  assert list(store.contents["files"]) == [
    "webp-000.tfrecord",
    "webp-001.tfrecord",
  ]
  store.keep(3, encoded(7, labels=[1]), adds=False)
  store.folder.settle()
  assert set(files_in(tmp_path)) == {"webp-003.tfrecord", "manifest-003.json"}
  assert Store(tmp_path).read().labels.tolist() == [1]


def test_a_step_is_not_written_twice(tmp_path):
  store = Store(tmp_path)
  store.keep(1, encoded(5, 6, labels=[0, 0]))
  for step in (0, 1):
    with pytest.raises(ValueError, match="not after step 1"):
      store.append(step, encoded(7, labels=[0]))
  assert len(Store(tmp_path).read()) == 2


def test_the_size_of_a_file_is_known_before_it_is_written(tmp_path):
  sizes = (1, 127, 128, 300, 20_000, 5, 6, 7)
  images = encoded(
    *sizes, labels=[0] * 5 + [200] * 3, held_out=[0, 0, 1, 0, 0, 1, 0, 0]
  )
  store = Store(tmp_path)
  store.keep(0, images)
  path = tmp_path / "webp-000.tfrecord"
  assert file_bytes(images) == path.stat().st_size
  assert store.contents["files"] == {path.name: file_bytes(images)}
  assert file_bytes(encoded(labels=[])) == 0


def test_damage_is_named_and_never_read(tmp_path):
  store = Store(tmp_path)
  store.keep(0, encoded(300, 200, 100, labels=[0, 0, 0]))
  path = tmp_path / "webp-000.tfrecord"
  whole = path.read_bytes()
  for place in range(0, len(whole), 41):
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"webp-000\.tfrecord .*damaged"):
      store.read()
  path.write_bytes(whole[:-5])
  with pytest.raises(UserError, match=path.name):
    store.read()
  path.unlink()
  with pytest.raises(UserError, match="missing"):
    store.read()


def test_a_pipe_in_the_place_of_a_file_does_not_block(tmp_path):
  store = Store(tmp_path)
  store.keep(0, encoded(50, labels=[0]))
  (tmp_path / "webp-000.tfrecord").unlink()
  os.mkfifo(tmp_path / "webp-000.tfrecord")
  with pytest.raises(UserError, match="is missing or damaged"):
    Store(tmp_path).read()


def test_a_file_cut_off_between_records_is_damaged(tmp_path):
  """TFRecord's checksums do not notice that a record is missing."""
  store, one = Store(tmp_path), encoded(50, labels=[0])
  two = encoded(50, 60, labels=[0, 1])
  store.keep(0, two)
  path = tmp_path / "webp-000.tfrecord"
  whole = path.read_bytes()
  for length in (0, file_bytes(one)):
    path.write_bytes(whole[:length])
    with pytest.raises(UserError, match="not hold what its manifest"):
      Store(tmp_path).read()
