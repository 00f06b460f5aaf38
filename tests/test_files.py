import json

import pytest

from ibdrr_tf import files


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
