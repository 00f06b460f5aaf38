import json

import pytest

from ibdrr_tf import files
from ibdrr_tf.errors import UserError


def test_json_is_written_whole(tmp_path):
  files.write_json(tmp_path / "sub" / "a.json", {"x": 1})
  assert json.loads((tmp_path / "sub" / "a.json").read_text()) == {"x": 1}
  assert [p.name for p in (tmp_path / "sub").iterdir()] == ["a.json"]


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path):
  path = tmp_path / "a.txt"
  files.write_text(path, "old")
  with pytest.raises(RuntimeError), files.replaced(path) as beside:
    beside.write_text("half of the n")
    raise RuntimeError
  assert path.read_text() == "old"
  assert list(tmp_path.iterdir()) == [path]


def test_a_wrong_place_is_named(tmp_path):
  file = tmp_path / "file"
  file.write_text("mine")
  for path in (file / "a.json", file / "b" / "a.json"):
    with pytest.raises(UserError, match=r"a\.json cannot be written"):
      files.check_writable(path)
    with pytest.raises(UserError, match=r"a\.json cannot be written"):
      files.write_text(path, "x")
  with pytest.raises(UserError, match="is a folder"):
    files.write_text(tmp_path, "x")
  files.check_writable(file)
  # A process of the same number was killed while it wrote a folder.
  stale = files.beside(file)
  (stale / "within").mkdir(parents=True)
  files.check_writable(file)
  assert file.read_text() == "mine"
  assert list(tmp_path.iterdir()) == [file]


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
  folder = tmp_path / "memory"
  kept = [folder / ".notes", folder / "a.part.txt", folder / ".a.part.txt"]
  files.write_text(folder / "a.tfrecord", "whole")
  for path in kept:
    path.write_text("mine")
  for name in ("a.tfrecord", "codec"):
    beside = files.beside(folder / name)
    beside.mkdir() if name == "codec" else beside.write_text("half")
    assert beside.exists()
  files.remove_leftovers(tmp_path)
  assert sorted(folder.iterdir()) == sorted([folder / "a.tfrecord", *kept])
