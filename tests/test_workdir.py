import ml_collections
import pytest

from ibdrr_tf import workdir
from ibdrr_tf.errors import UserError
from ibdrr_tf.lock import Lock


def config(**fields):
  return ml_collections.ConfigDict({"dataset": "d", "method": "m", **fields})


@pytest.mark.parametrize(
  "text",
  [
    *("{}", "[]", "3", '{"phases": 3}', '{"phases": [{}]}', "", "\xff"),
    *('{"phases": [{"phase": 0, "memory": 1}]}', "[" * 100_000),
  ],
)
def test_results_that_are_none_get_a_sentence(tmp_path, text):
  path = tmp_path / "run"
  workdir.open_workdir(str(path), config(), resume=False, data="x")
  (path / "results.json").write_bytes(text.encode("latin-1"))
  with pytest.raises(UserError, match=r"results\.json is damaged: restore it"):
    workdir.open_workdir(str(path), config(), resume=True, data="x")


@pytest.mark.parametrize("text", ["[]", "3", "null"])
def test_other_configs_are_not_resumed(tmp_path, monkeypatch, text):
  monkeypatch.chdir(tmp_path)
  other = tmp_path / "runs" / "d-m-2020"
  other.mkdir(parents=True)
  (other / "config.json").write_text(text)
  assert workdir.default_path(config(), resume=True) != "runs/d-m-2020"


def test_files_of_a_run_in_progress_are_left_alone(tmp_path):
  path = tmp_path / "run"
  workdir.open_workdir(str(path), config(), resume=False, data="x")
  part = path / ".memory.123.part.tfrecord"
  part.touch()
  with (
    Lock(path),
    pytest.raises(UserError, match=r"in use by process \d+ on"),
  ):
    workdir.open_workdir(str(path), config(), resume=True, data="x")
  assert part.exists()
  workdir.open_workdir(str(path), config(), resume=True, data="x")
  assert not part.exists()
