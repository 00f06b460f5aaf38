import dataclasses
import json
import os

import pytest

from ibdrr_tf import state
from ibdrr_tf.errors import UserError

STATE = state.State(
  step=1,
  classes=("a", "b"),
  image_shape=(8, 8, 3),
  config={"seed": 0},
  network={"classes": 2, "old_classes": 1},
  steps=({"images": 3},),
)


def test_a_state_comes_back(tmp_path):
  assert state.read_state(tmp_path) is None
  state.write_state(tmp_path, STATE)
  assert state.read_state(tmp_path) == STATE


@pytest.mark.parametrize(
  "fields",
  [
    {"step": "1"},
    {"step": -2},
    {"step": True},
    {"classes": (1, 2)},
    {"classes": ("a", "a")},
    {"image_shape": (8, 8)},
    {"image_shape": (8, 0, 3)},
    {"config": []},
    {"network": {"classes": "2"}},
    {"network": 3},
    {"network": {}},
    {"network": {"classes": 1 << 31, "old_classes": 1}},
    {"network": {"classes": 2, "old_classes": 3}},
    {"image_shape": (1 << 26, 8, 3)},
    {"steps": (3,)},
  ],
)
def test_fields_of_another_type_are_refused(tmp_path, fields):
  """Whoever edits a state may well compute its checksum, too."""
  state.write_state(tmp_path, dataclasses.replace(STATE, **fields))
  with pytest.raises(UserError, match=r"state\.json is damaged: restore it"):
    state.read_state(tmp_path)


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_what_is_no_file_does_not_block(tmp_path, kind):
  path = tmp_path / "state.json"
  os.mkfifo(path) if kind == "pipe" else path.mkdir()
  with pytest.raises(UserError, match=r"state\.json is damaged"):
    state.read_state(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 100_000, "\xff", "nul"])
def test_what_is_no_state_is_refused(tmp_path, text):
  (tmp_path / "state.json").write_bytes(text.encode("latin-1"))
  with pytest.raises(UserError, match=r"state\.json is damaged"):
    state.read_state(tmp_path)


def test_every_single_bit_of_a_state_counts(tmp_path):
  state.write_state(tmp_path, STATE)
  path = tmp_path / "state.json"
  data = path.read_bytes()
  for place in range(len(data)):
    for bit in (1, 4, 32, 64):
      changed = bytearray(data)
      changed[place] ^= bit
      path.write_bytes(changed)
      try:
        assert json.loads(data) == json.loads(changed)
      except (ValueError, AssertionError):
        with pytest.raises(UserError, match=r"damaged|newer version"):
          state.read_state(tmp_path)
