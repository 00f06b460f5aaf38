"""Sheets or codes: by the nearest measurement."""

import pytest

from ibdrr_tf import config as defaults
from ibdrr_tf import memory_choice
from ibdrr_tf.memory_choice import Measured

MEASURED = (
  Measured(10**6, 10**4, 60.0, 60.0),
  Measured(10**8, 10**4, 60.0, 64.0),
  Measured(10**6, 10**6, 60.0, 59.0),
)


@pytest.mark.parametrize(
  ("budget", "images", "number"),
  [
    (1, 1, 0),
    (9 * 10**6, 10**4, 0),  # Ratios count: nine times, and eleven times.
    (11 * 10**6, 10**4, 1),
    (10**12, 10**3, 1),
    (10**6, 2 * 10**5, 2),
    (10**6, 9 * 10**4, 0),
  ],
)
def test_the_nearest_is_found_by_ratios(budget, images, number):
  found = memory_choice.nearest(budget, images, MEASURED)
  assert found == MEASURED[number]


@pytest.mark.parametrize(
  ("given", "chosen", "told"),
  [
    (("auto", "auto", 0, 0), ("sheet_replay", "tiny_imagenet"), "no byte"),
    (("auto", "auto", 10**6, 0), ("sheet_replay", "tiny_imagenet"), "not said"),
    (
      ("auto", "auto", 4 * 10**6, 5 * 10**4),
      ("drr", "tiny_imagenet"),
      "bit-strings (drr, codec tiny_imagenet): with 4,000,000 bytes",
    ),
    (
      ("auto", "auto", 10**6, 10**4),
      ("sheet_replay", "tiny_imagenet"),
      "contact sheets (sheet_replay): with 1,000,000 bytes",
    ),
    (("auto", "cifar100", 0, 0), ("drr", "cifar100"), "a codec is named"),
    (("icarl", "auto", 0, 0), ("icarl", "tiny_imagenet"), None),
    (("ib_drr", "mine", 10**7, 9), ("ib_drr", "mine"), None),
  ],
)
def test_what_is_given_is_kept(given, chosen, told):
  config = defaults.learner_config()
  config.method, config.codec, budget, images = given
  config.memory.total_bytes = budget
  config.memory.expected_images = images
  answer = memory_choice.choose(config)
  assert (config.method, config.codec) == chosen
  assert (told is None) == (answer is None) and (told or "") in (answer or "")


def test_the_default_is_open():
  config = defaults.learner_config()
  assert (config.method, config.codec) == ("auto", "auto")
