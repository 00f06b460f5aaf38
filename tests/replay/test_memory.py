"""Nothing that is remembered is lost, whatever happens to process or disk."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.codec import code_tree
from ibdrr_tf.codec.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.bit_swap_model import BitSwapModel
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.memory import CodeMemory, Codes

CODES = 8


def make_model(seed):
  tf.keras.utils.set_random_seed(seed)
  book = np.random.default_rng(0).normal(size=(CODES, 2))
  trees = [code_tree.make_tree(book)] * 2
  return BitSwapModel(
    trees, latents=1, latent_channels=1, width=4, blocks=1, embedding=2
  )


def make_codes(seed, classes, per_class=3):
  generator = np.random.default_rng(seed)
  labels = np.repeat(np.arange(classes), per_class).astype(np.int32)
  top = generator.integers(0, CODES, (len(labels), 1, 1, 1))
  bottom = generator.integers(0, CODES, (len(labels), 2, 2, 1))
  return Codes(top.astype(np.int16), bottom.astype(np.int16), labels)


def assert_same(got, want):
  np.testing.assert_array_equal(got.top, want.top)
  np.testing.assert_array_equal(got.bottom, want.bottom)
  np.testing.assert_array_equal(got.labels, want.labels)


@pytest.fixture(scope="module")
def models():
  return make_model(0), make_model(1)


@pytest.fixture(scope="module")
def coder():
  return BitSwapCodec()


@pytest.fixture
def open_memory(tmp_path, coder):
  return lambda: CodeMemory(tmp_path / "memory", tmp_path / "codec", coder)


def test_what_is_remembered_comes_back_in_another_process(open_memory, models):
  memory = open_memory()
  assert memory.phase == -1 and memory.model() is None
  memory.replace(0, make_codes(0, 2), models[0])
  memory.replace(1, make_codes(1, 5), models[1])
  again = open_memory()
  assert again.phase == 1
  assert_same(again.read(), make_codes(1, 5))


def test_the_ledger_is_what_lies_on_the_disk(open_memory, models, tmp_path):
  memory = open_memory()
  memory.replace(3, make_codes(0, 4), models[0])
  stored = memory.stored_bytes()
  sizes = {path.name: path.stat().st_size for path in tmp_path.rglob("*.*")}
  assert set(sizes) == {
    "manifest.json",
    "chains-003.tfrecord",
    "bitswap.ibbs",
  }
  assert stored["codec_bitswap"] == sizes.pop("bitswap.ibbs")
  assert stored["payload"] + stored["index"] == sum(sizes.values())
  assert stored["images"] == 12 and stored["codes"] == 12 * 5


class Killed(BaseException):
  """Stands for the end of the process: nothing may catch it."""


def dying(operation, left):
  """An operation that fails once so many of them have been done."""

  def wrapped(*args):
    if not left[0]:
      raise Killed
    left[0] -= 1
    return operation(*args)

  return wrapped


def test_killed_at_any_instant_old_or_new_is_whole(
  open_memory, models, tmp_path, monkeypatch
):
  """Dies before every rename and every flush that a change makes."""
  old, new = make_codes(0, 2), make_codes(1, 3)
  names = ("replace", "fsync")
  real = {name: getattr(os, name) for name in names}
  seen = set()
  for last in range(100):
    for path in sorted(tmp_path.rglob("*"), reverse=True):
      path.rmdir() if path.is_dir() else path.unlink()
    open_memory().replace(0, old, models[0])
    memory, left = open_memory(), [last]

    for name in names:
      monkeypatch.setattr(os, name, dying(real[name], left))
    try:
      memory.replace(1, new, models[1])
      finished = True
    except Killed:
      finished = False
    for name in names:
      monkeypatch.setattr(os, name, real[name])
    after = open_memory()
    assert_same(after.read(), new if after.phase else old)
    seen.add((after.phase, finished))
    # And the change can be made, if it was not.
    if not after.phase:
      after.replace(1, new, models[1])
    assert_same(open_memory().read(), new)
    if finished:
      break
  assert seen == {(0, False), (1, False), (1, True)}
  assert last > 5


def test_every_damaged_byte_is_reported_with_its_file(
  open_memory, models, tmp_path
):
  open_memory().replace(0, make_codes(0, 2), models[0])
  path = tmp_path / "memory" / "chains-000.tfrecord"
  whole = path.read_bytes()
  for place in range(0, len(whole), 7):
    damaged = bytearray(whole)
    damaged[place] ^= 0x41
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"chains-000\.tfrecord.*: restore it"):
      open_memory().read()
  path.unlink()
  with pytest.raises(UserError, match="missing or damaged"):
    open_memory().read()


def test_files_of_other_states_and_models_are_refused(
  open_memory, models, tmp_path
):
  memory = open_memory()
  memory.replace(0, make_codes(0, 2), models[0])
  path = tmp_path / "memory" / "chains-000.tfrecord"
  earlier = path.read_bytes()
  memory.replace(1, make_codes(0, 4), models[0])
  (tmp_path / "memory" / "chains-001.tfrecord").write_bytes(earlier)
  with pytest.raises(UserError, match="not the one that its manifest"):
    open_memory().read()
  memory.replace(2, make_codes(0, 4), models[1])
  (tmp_path / "memory" / "chains-002.tfrecord").write_bytes(earlier)
  with pytest.raises(UserError, match="another model"):
    open_memory().read()
  (tmp_path / "codec" / "bitswap.ibbs").unlink()
  with pytest.raises(UserError, match=r"bitswap\.ibbs is missing"):
    open_memory().read()


def test_a_phase_is_not_remembered_twice(open_memory, models):
  """Its own file would be overwritten before the change counts."""
  memory = open_memory()
  memory.replace(1, make_codes(0, 2), models[0])
  for phase in (0, 1):
    with pytest.raises(ValueError, match="not after phase 1"):
      memory.replace(phase, make_codes(0, 3), models[1])
  assert_same(open_memory().read(), make_codes(0, 2))


def test_without_its_manifest_nothing_is_thrown_away(
  open_memory, models, tmp_path
):
  open_memory().replace(0, make_codes(0, 2), models[0])
  path = tmp_path / "memory" / "manifest.json"
  path.rename(tmp_path / "elsewhere.json")
  with pytest.raises(UserError, match=r"no manifest\.json: restore it"):
    open_memory().read()
  (tmp_path / "elsewhere.json").rename(path)
  assert_same(open_memory().read(), make_codes(0, 2))


def test_a_manifest_that_cannot_be_read_is_refused(
  open_memory, models, tmp_path
):
  open_memory().replace(0, make_codes(0, 2), models[0])
  path = tmp_path / "memory" / "manifest.json"
  manifest = json.loads(path.read_text())
  files.write_json(path, manifest | {"version": 99})
  with pytest.raises(UserError, match="newer version"):
    open_memory()
  path.write_text("{")
  with pytest.raises(UserError, match=r"manifest\.json is damaged"):
    open_memory()
