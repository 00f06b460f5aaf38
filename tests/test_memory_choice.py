"""Sheets or codes: by the budget, from what was measured."""

import pytest

from ibdrr_tf import config as defaults
from ibdrr_tf import memory_choice
from ibdrr_tf.memory_choice import Measured

MEASURED = (Measured(10**6, 60.0, 60.0), Measured(10**8, 60.0, 64.0))


@pytest.mark.parametrize(
  ("budget", "gain"),
  [(1, 0.0), (10**6, 0.0), (10**7, 2.0), (10**8, 4.0), (10**12, 4.0)],
)
def test_gain_lies_between_the_measured_ones(budget, gain):
  """On a logarithmic scale: ten times the bytes are half of the way."""
  assert memory_choice.expected_gain(budget, MEASURED) == pytest.approx(gain)


@pytest.mark.parametrize(
  ("method", "codec", "budget", "chosen", "told"),
  [
    ("auto", "auto", 0, ("sheet_replay", "tiny_imagenet"), "no byte budget"),
    ("auto", "auto", 10**5, ("sheet_replay", "tiny_imagenet"), "100,000 bytes"),
    ("auto", "auto", 10**7, ("drr", "tiny_imagenet"), "bit-strings"),
    ("auto", "cifar100", 0, ("drr", "cifar100"), "a codec is named"),
    ("icarl", "auto", 0, ("icarl", "tiny_imagenet"), None),
    ("ib_drr", "mine", 10**7, ("ib_drr", "mine"), None),
  ],
)
def test_what_is_given_is_kept(method, codec, budget, chosen, told):
  config = defaults.learner_config()
  config.method, config.codec = method, codec
  config.memory.total_bytes = budget
  answer = memory_choice.choose(config)
  assert (config.method, config.codec) == chosen
  assert (told is None) == (answer is None) and (told or "") in (answer or "")


def test_the_default_is_open():
  config = defaults.learner_config()
  assert (config.method, config.codec) == ("auto", "auto")
