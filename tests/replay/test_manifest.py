"""The files of a memory: which of them count, and what is ever removed."""

import json
import os
import pathlib

import pytest
from tiny_step import files_in

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.manifest import MemoryFolder


def write_step(path, step, contents, counted=None):
  """Takes a step as a memory does: a file of its own, then the manifest.

  Args:
    path: of the memory.
    step: number of the step.
    contents: of its new file.
    counted: the step that counts before it; None is the newest.
  """
  folder = MemoryFolder(path, counted)
  file = folder.new_file("codes", step, "tfrecord")
  file.parent.mkdir(exist_ok=True)
  file.write_bytes(contents)
  old = folder.parts.get("codes", {"files": {}})["files"]
  sizes = {**old, file.name: len(contents)}
  folder.write(step, {"codes": {"files": sizes, "images": step}})
  return folder


@pytest.fixture
def path(tmp_path):
  """A memory after two steps, whose manifests are both still there."""
  path = tmp_path / "memory"
  write_step(path, 0, b"zero")
  write_step(path, 1, b"one")
  return path


def test_an_empty_memory_has_no_parts_and_no_bytes(tmp_path):
  folder = MemoryFolder(tmp_path / "memory")
  assert (folder.step, folder.parts, folder.manifest_bytes) == (-1, {}, 0)
  folder.settle()
  assert not (tmp_path / "memory").exists()


def test_the_owner_says_which_step_counts_else_the_newest(path):
  assert MemoryFolder(path).step == 1
  old = MemoryFolder(path, 0)
  assert list(old.parts["codes"]["files"]) == ["codes-000.tfrecord"]
  assert MemoryFolder(path, -1).parts == {}
  new = MemoryFolder(path, 1)
  assert list(new.check()) == [
    "codes-000.tfrecord",
    "codes-001.tfrecord",
    "manifest-001.json",
  ]
  assert new.manifest_bytes == (path / "manifest-001.json").stat().st_size


def test_settling_leaves_the_files_in_force_and_those_of_others(path):
  strangers = ["notes.txt", "manifest.json", "codes-1.tfrecord", "a-000.png"]
  for name in strangers:
    (path / name).write_text("mine")
  MemoryFolder(path, 1).settle()
  assert set(files_in(path)) == {
    "codes-000.tfrecord",
    "codes-001.tfrecord",
    "manifest-001.json",
    *strangers,
  }


def test_a_step_that_never_counted_leaves_nothing(path):
  MemoryFolder(path, 0).settle()
  assert set(files_in(path)) == {"codes-000.tfrecord", "manifest-000.json"}


@pytest.mark.parametrize(
  ("damage", "says"),
  [
    (lambda path: path.unlink(), "is missing"),
    (lambda path: path.write_bytes(b"on"), "has 2 bytes, where its manifest"),
    (lambda path: path.write_bytes(b"onee"), "says 3"),
  ],
)
def test_nothing_is_removed_before_all_files_in_force_are_found(
  path, damage, says
):
  damage(path / "codes-001.tfrecord")
  before = files_in(path)
  folder = MemoryFolder(path, 1)
  with pytest.raises(UserError, match=rf"codes-001\.tfrecord .*{says}"):
    folder.settle()
  assert files_in(path) == before


def changed(text, old, new):
  assert text.count(old) == 1
  return text.replace(old, new)


@pytest.mark.parametrize(
  ("old", "new"),
  [
    ('"step":1', '"step":2'),
    ('"step":1', '"step":"1"'),
    ('"codes-001.tfrecord":3', '"codes-001.tfrecord":4'),
    ('"codes-001.tfrecord":3', '"codes-001.tfrecord":null'),
    ('"codes-000.tfrecord":4,', ""),
    ('"images":1', '"images":2'),
    ('"version":2', '"version":1'),
    ('"checksum":"', '"checksum":"0'),
    ('"parts":', '"part":'),
    ("}}", "}"),
  ],
)
@pytest.mark.parametrize("step", [1, None])
def test_one_wrong_digit_of_a_manifest_removes_nothing(path, old, new, step):
  manifest = path / "manifest-001.json"
  manifest.write_text(changed(manifest.read_text(), old, new))
  before = files_in(path)
  with pytest.raises(UserError, match=r"manifest-001\.json is damaged: rest"):
    MemoryFolder(path, step).settle()
  assert files_in(path) == before


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"version":2}'])
def test_what_is_no_manifest_is_refused(path, text):
  (path / "manifest-001.json").write_text(text)
  with pytest.raises(UserError, match=r"manifest-001\.json is damaged"):
    MemoryFolder(path)


def test_every_single_bit_of_a_manifest_counts(path):
  manifest = path / "manifest-001.json"
  whole = manifest.read_bytes()
  for place in range(len(whole) - 1):  # The last byte ends the line.
    damaged = bytearray(whole)
    damaged[place] ^= 1
    manifest.write_bytes(damaged)
    with pytest.raises(UserError, match=r"manifest-001\.json"):
      MemoryFolder(path)


def test_the_manifest_of_another_step_is_refused(path):
  os.replace(path / "manifest-000.json", path / "manifest-001.json")
  with pytest.raises(UserError, match="damaged"):
    MemoryFolder(path)


def test_a_missing_manifest_is_named(path):
  before = files_in(path)
  with pytest.raises(UserError, match=r"manifest-002\.json is missing"):
    MemoryFolder(path, 2)
  assert files_in(path) == before


def test_a_manifest_of_a_newer_version_is_refused(path):
  manifest = path / "manifest-001.json"
  body = json.loads(manifest.read_text())
  manifest.write_text(json.dumps(body | {"version": 99}))
  with pytest.raises(UserError, match="newer version"):
    MemoryFolder(path)


def test_files_in_force_are_never_written_again(path):
  """Its own file would be overwritten before the change counts."""
  folder = MemoryFolder(path, 1)
  for step in (0, 1):
    with pytest.raises(ValueError, match="not after step 1"):
      folder.new_file("codes", step, "tfrecord")
    with pytest.raises(ValueError, match="not after step 1"):
      folder.write(step, {})
  name = folder.new_file("codes", 2, "tfrecord").name
  assert name == "codes-002.tfrecord"


class Killed(BaseException):
  """Stands for the end of the process: nothing may catch it."""


def test_killed_while_it_settles_the_step_in_force_is_whole(path, monkeypatch):
  unlink = pathlib.Path.unlink
  for last in range(10):
    write_step(path, 2 + last, b"more", MemoryFolder(path).step)
    (path / "exemplars-001.tfrecord").write_bytes(b"left over")
    left = [last]

    def dying(self, missing_ok=False, left=left):
      if not left[0]:
        raise Killed
      left[0] -= 1
      unlink(self, missing_ok)

    monkeypatch.setattr(pathlib.Path, "unlink", dying)
    folder = MemoryFolder(path)
    try:
      folder.settle()
      finished = True
    except Killed:
      finished = False
    monkeypatch.setattr(pathlib.Path, "unlink", unlink)
    again = MemoryFolder(path, 2 + last)
    assert again.check() == folder.check()
    if finished:
      break
  assert finished and last > 0
  assert set(files_in(path)) == set(again.check())


def test_a_part_that_lacks_an_entry_is_refused(path):
  folder = MemoryFolder(path)
  nothing = {"files": {}, "images": 0}
  assert folder.part("codes", nothing)["images"] == 1
  assert folder.part("exemplars", nothing) == nothing
  for wanted in ({"chains": 0}, {"images": ""}, {"model": None}):
    with pytest.raises(UserError, match=r"has no (chains|images|model) of its"):
      folder.part("codes", {**nothing, **wanted})


def test_files_outside_the_folder_are_never_named(path):
  folder = MemoryFolder(path)
  folder.write(2, {"codes": {"files": {"../codes-000.tfrecord": 4}}})
  with pytest.raises(UserError, match="is damaged"):
    MemoryFolder(path)
