import fuzz
import pytest


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_nothing_crashes_hangs_or_grows(name):
  """A thousand inputs; `python tests/fuzz.py all` reads ten thousand."""
  result = fuzz.run(name, 1000)
  assert result["refused"] > 300


@pytest.mark.parametrize("name", ["archives", "states", "strings"])
def test_a_few_inputs_each(name):
  assert fuzz.run(name, 60, seed=1)["refused"] > 20
