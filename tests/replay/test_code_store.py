"""Chains on the disk: nothing is lost, whatever happens to process or disk."""

import os
import pathlib
import shutil

import growth
import numpy as np
import pytest
import tensorflow as tf
from tiny_step import bytes_in, files_in

from ibdrr_tf.codec.lossless import bit_swap_file, code_tree
from ibdrr_tf.codec.lossless.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.errors import UserError
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.manifest import MemoryFolder

CODES = 8


def make_model(seed):
  set_random_seed(seed)
  book = np.random.default_rng(0).normal(size=(CODES, 2))
  trees = [code_tree.make_tree(book)] * 2
  return BitSwapModel(
    trees, latents=1, latent_channels=1, width=4, blocks=1, embedding=2
  )


def make_codes(seed, classes, per_class=3, held_out=False):
  generator = np.random.default_rng(seed)
  labels = np.repeat(np.arange(classes), per_class).astype(np.int32)
  top = generator.integers(0, CODES, (len(labels), 1, 1, 1))
  bottom = generator.integers(0, CODES, (len(labels), 2, 2, 1))
  marks = generator.random(len(labels)) < 0.4 if held_out else None
  return Codes(top.astype(np.int16), bottom.astype(np.int16), labels, marks)


def assert_same(got, want):
  for name in ("top", "bottom", "labels", "held_out"):
    values = getattr(got, name)
    np.testing.assert_array_equal(values, getattr(want, name))
    assert values.dtype == getattr(want, name).dtype


@pytest.fixture(scope="module")
def models():
  return make_model(0), make_model(1)


@pytest.fixture(scope="module")
def coder():
  """Chains of four images, so that a few images make several."""
  return BitSwapCodec(chain_images=4, group=2)


class Store(CodeStore):
  """A store that commits what it writes at once, as the newest step."""

  def __init__(self, path, coder, step=None):
    self.folder = MemoryFolder(path / "memory", step)
    super().__init__(self.folder, path / "codec", coder)

  def keep(self, step, codes, model=None, *, adds=False):
    if adds:
      part = self.append(step, codes)
    else:
      part = self.replace(step, codes, model)
    self.folder.write(step, {self.PART: part})

  def tidy(self):
    self.folder.check()
    self.settle()
    self.folder.settle()


@pytest.fixture
def open_store(tmp_path, coder):
  return lambda step=None: Store(tmp_path, coder, step)


def test_what_is_remembered_comes_back_in_another_process(open_store, models):
  store = open_store()
  assert store.contents["images"] == 0 and store.model() is None
  with pytest.raises(UserError, match="holds no images"):
    store.read()
  store.keep(0, make_codes(0, 2), models[0])
  store.tidy()
  store.keep(1, make_codes(1, 5), models[1])
  store.tidy()
  again = open_store()
  assert again.folder.step == 1
  assert_same(again.read(), make_codes(1, 5))
  assert bit_swap_file.to_bytes(again.model()) == bit_swap_file.to_bytes(
    models[1]
  )


def test_chains_of_several_files_come_back_in_order(open_store, models):
  parts = [make_codes(seed, 2 + seed, held_out=True) for seed in range(4)]
  store = open_store()
  store.keep(0, parts[0], models[0])
  for step, codes in enumerate(parts[1:], start=1):
    store.keep(step, codes, adds=True)
    # A new process at every step.
    store = open_store()
    assert_same(store.read(), Codes.join(parts[: step + 1]))
  contents = store.contents
  assert contents["images"] == 3 * (2 + 3 + 4 + 5)
  assert contents["chains"] == 2 + 3 + 3 + 4
  assert contents["codes"] == 5 * contents["images"]
  assert contents["fitted"] == 6


def test_appending_rewrites_no_old_file(open_store, models, tmp_path):
  store = open_store()
  store.keep(0, make_codes(0, 3), models[0])
  store.tidy()
  before = files_in(tmp_path / "memory") | files_in(tmp_path / "codec")
  paths = {path.name: path for path in tmp_path.rglob("*.*")}
  for path in paths.values():
    os.utime(path, ns=(1, 1))
  store.keep(1, make_codes(1, 2), adds=True)
  store.tidy()
  after = files_in(tmp_path / "memory") | files_in(tmp_path / "codec")
  del before["manifest-000.json"]
  for name, data in before.items():
    assert after[name] == data
    assert paths[name].stat().st_mtime_ns == 1
  assert set(after) - set(before) == {"codes-001.tfrecord", "manifest-001.json"}


def test_equal_images_of_two_steps_are_other_chains(open_store, models):
  """Each chain has initial bits of its own."""
  store, codes = open_store(), make_codes(0, 1)
  store.keep(0, codes, models[0])
  store.keep(1, codes, adds=True)
  one, other = (
    (store.folder.path / name).read_bytes() for name in store.contents["files"]
  )
  assert len(one) == len(other) and one != other


def test_marks_of_held_out_images_survive(open_store, models):
  codes = make_codes(0, 4, held_out=True)
  assert 0 < codes.held_out.sum() < len(codes)
  store = open_store()
  store.keep(0, codes, models[0])
  assert_same(open_store().read(), codes)
  # Images of one class, of which every other one tests: runs of length one.
  marks = np.arange(6) % 2 == 0
  runs = Codes(codes.top[:6], codes.bottom[:6], np.zeros(6, np.int32), marks)
  store.keep(1, runs, adds=True)
  assert_same(open_store().read(), Codes.join([codes, runs]))


def test_without_a_model_nothing_can_be_appended(open_store):
  with pytest.raises(UserError, match=r"has no bitswap\.ibbs: fit a model"):
    open_store().append(0, make_codes(0, 1))


def test_a_model_from_elsewhere_begins_a_memory(open_store, models, tmp_path):
  data = bit_swap_file.to_bytes(models[0])
  (tmp_path / "codec").mkdir()
  (tmp_path / "codec" / "bitswap.ibbs").write_bytes(data)
  store = open_store()
  store.keep(0, make_codes(0, 2), adds=True)
  store.tidy()
  assert store.contents["fitted"] == 0
  assert_same(open_store().read(), make_codes(0, 2))
  assert (tmp_path / "codec" / "bitswap.ibbs").read_bytes() == data


def test_the_ledger_is_what_lies_on_the_disk(open_store, models, tmp_path):
  store = open_store()
  store.keep(3, make_codes(0, 4), models[0])
  store.tidy()
  store.keep(4, make_codes(1, 1), adds=True)
  store.tidy()
  stored = store.stored_bytes()
  assert set(files_in(tmp_path / "memory")) == {
    "codes-003.tfrecord",
    "codes-004.tfrecord",
    "manifest-004.json",
  }
  assert set(files_in(tmp_path / "codec")) == {"bitswap.ibbs"}
  assert stored["codec_bitswap"] == bytes_in(tmp_path / "codec")
  files = stored["payload"] + stored["index"] + store.folder.manifest_bytes
  assert files == bytes_in(tmp_path / "memory")
  assert stored["images"] == 15 and stored["codes"] == 15 * 5


class Killed(BaseException):
  """Stands for the end of the process: nothing may catch it."""


def dying(operation, left):
  """An operation that fails once so many of them have been done."""

  def wrapped(*args, **kwargs):
    if not left[0]:
      raise Killed
    left[0] -= 1
    return operation(*args, **kwargs)

  return wrapped


@pytest.mark.parametrize("adds", [False, True])
def test_killed_at_any_instant_old_or_new_is_whole(
  open_store, models, tmp_path, monkeypatch, adds
):
  """Dies before every rename, flush and removal that a change makes."""
  old, added = make_codes(0, 2), make_codes(1, 3)
  new = Codes.join([old, added]) if adds else added
  places = [(os, "replace"), (os, "fsync"), (pathlib.Path, "unlink")]
  real = [getattr(*place) for place in places]
  seen = set()

  committed = []
  store = open_store()
  store.keep(0, old, models[0])
  store.tidy()
  before = tmp_path.with_name(f"{tmp_path.name}-before")
  shutil.copytree(tmp_path, before)

  def change(store):
    store.keep(1, added, models[1], adds=adds)
    committed.append(last)
    store.tidy()

  for last in range(100):
    shutil.rmtree(tmp_path)
    shutil.copytree(before, tmp_path)
    store, left = open_store(), [last]
    for place, operation in zip(places, real, strict=True):
      monkeypatch.setattr(*place, dying(operation, left))
    try:
      change(store)
      finished = True
    except Killed:
      finished = False
    for place, operation in zip(places, real, strict=True):
      monkeypatch.setattr(*place, operation)
    after = open_store()
    assert_same(after.read(), new if after.folder.step else old)
    seen.add((after.folder.step, finished))
    # An owner that had not committed the step sees the one before.
    if after.folder.step and last not in committed:
      assert_same(open_store(0).read(), old)
    # And the change can be made, if it was not.
    if after.folder.step == 0:
      change(after)
      assert_same(open_store().read(), new)
    after.tidy()
    names = set(files_in(tmp_path / "codec"))
    assert {n for n in names if not n.startswith(".")} == {"bitswap.ibbs"}
    if finished:
      break
  assert seen == {(0, False), (1, False), (1, True)}
  assert last > 5


def test_every_damaged_byte_is_reported_with_its_file(
  open_store, models, tmp_path
):
  open_store().keep(0, make_codes(0, 2), models[0])
  path = tmp_path / "memory" / "codes-000.tfrecord"
  whole = path.read_bytes()
  for place in range(0, len(whole), 7):
    damaged = bytearray(whole)
    damaged[place] ^= 0x41
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"codes-000\.tfrecord.*: restore it"):
      open_store().read()
  path.unlink()
  with pytest.raises(UserError, match="missing or damaged"):
    open_store().read()


def test_files_of_other_states_and_models_are_refused(
  open_store, models, tmp_path
):
  memory = tmp_path / "memory"
  store = open_store()
  store.keep(0, make_codes(0, 2), models[0])
  earlier = (memory / "codes-000.tfrecord").read_bytes()
  store.keep(1, make_codes(0, 4), models[0])
  (memory / "codes-001.tfrecord").write_bytes(earlier)
  with pytest.raises(UserError, match="not hold what its manifest"):
    open_store().read()
  store.keep(2, make_codes(0, 4), models[1])
  store.tidy()
  (memory / "codes-002.tfrecord").write_bytes(earlier)
  with pytest.raises(UserError, match="another model"):
    open_store().read()
  (tmp_path / "codec" / "bitswap.ibbs").unlink()
  with pytest.raises(UserError, match=r"bitswap\.ibbs .* is missing"):
    open_store().read()


def test_a_step_is_not_remembered_twice(open_store, models):
  """Its own file would be overwritten before the change counts."""
  store = open_store()
  store.keep(1, make_codes(0, 2), models[0])
  store.tidy()
  for step in (0, 1):
    with pytest.raises(ValueError, match="not after step 1"):
      store.append(step, make_codes(0, 3))
    with pytest.raises(ValueError, match="not after step 1"):
      store.replace(step, make_codes(0, 3), models[1])
  store.tidy()
  assert_same(open_store().read(), make_codes(0, 2))


def test_a_model_that_waits_for_a_step_that_never_counted_is_removed(
  open_store, models, tmp_path
):
  store = open_store()
  store.keep(0, make_codes(0, 2), models[0])
  store.tidy()
  store.replace(1, make_codes(1, 2), models[1])  # Killed before its manifest.
  waiting = tmp_path / "codec" / "bitswap.next.ibbs"
  assert waiting.is_file()
  again = open_store(0)
  assert_same(again.read(), make_codes(0, 2))
  again.tidy()
  assert not waiting.exists()
  assert_same(open_store(0).read(), make_codes(0, 2))


@pytest.mark.parametrize(
  "columns",
  [
    {"labels": [0], "lengths": [(1 << 31) - 1]},
    {"labels": [0], "lengths": [1 << 40]},
    {"labels": [0] * 4, "lengths": [1 << 62] * 4},
    {"labels": [0, 1], "lengths": [5, -1]},
    {"labels": [0, 1], "lengths": [4, 0]},
    {"labels": [0], "lengths": [3]},
    {"labels": [0, 1], "lengths": [4]},
    {"labels": [0], "lengths": [4], "held_out": [1, 0]},
    {"labels": [-1], "lengths": [4]},
    {"labels": [1 << 32], "lengths": [4]},
    {"labels": [], "lengths": []},
    {"labels": [0]},
  ],
)
def test_records_with_wrong_lengths_are_refused(
  tmp_path, models, open_store, columns
):
  """TensorFlow's checksums of a record are right; anyone can compute them."""
  store = open_store()
  store.keep(0, make_codes(0, 1, 4), models[0])
  (path,) = (tmp_path / "memory").glob("codes-*.tfrecord")
  (record,) = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
  feature = tf.train.Example.FromString(record).features.feature
  made = {"chain": feature["chain"]}
  for name, values in columns.items():
    numbers = tf.train.Int64List(value=values)
    made[name] = tf.train.Feature(int64_list=numbers)
  example = tf.train.Example(features=tf.train.Features(feature=made))
  with tf.io.TFRecordWriter(str(path)) as writer:
    writer.write(example.SerializeToString())
  with growth.at_most(100):
    for read in (store.read, store.blocks):
      with pytest.raises(UserError, match="is missing or damaged"):
        read()
