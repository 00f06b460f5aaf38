import sys

import fuzz
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_nothing_crashes_hangs_or_grows(name):
  """A thousand inputs; `python tests/fuzz.py all` reads ten thousand."""
  assert fuzz.run(name, 1000)["refused"] > 200


@pytest.mark.parametrize("name", ["commands", "states", "strings"])
def test_a_few_inputs_each(name):
  assert fuzz.run(name, 60, seed=1)["refused"] > 20


def test_atheris_says_what_it_can_do(monkeypatch):
  monkeypatch.setitem(sys.modules, "atheris", None)
  with pytest.raises(SystemExit, match="atheris is not installed: pip install"):
    fuzz._with_atheris("archives", 1)
