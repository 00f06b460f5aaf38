"""What a new learner keeps images as, unless it is told.

Codes need a codec, whose bytes count; contact sheets need none. Which of them
teaches a classifier more depends on the byte budget. So the choice is made from
measurements: the same images, learned step by step under the same budget. None
of this needs TensorFlow.
"""

import dataclasses
import itertools
import math

import ml_collections

__all__ = ["AUTO", "MEASURED", "Measured", "choose", "expected_gain"]

AUTO = "auto"
_SHEETS, _CODES, _CODEC = "sheet_replay", "drr", "tiny_imagenet"
# Points that codes must be ahead by: two seeds differ by about as much.
_LEAD = 1.0


@dataclasses.dataclass(frozen=True)
class Measured:
  """One budget, with the accuracies of both memories.

  Attributes:
    memory_bytes: budget of images and codec.
    sheets: accuracy with contact sheets, %.
    codes: accuracy with codes, %.
  """

  memory_bytes: int
  sheets: float
  codes: float


# CIFAR-100 in steps, images of 32 pixels; see results/accuracy.md for commands
# and seeds.
MEASURED = (
  Measured(1_000_000, sheets=68.40, codes=68.64),
  Measured(4_000_000, sheets=58.30, codes=61.28),
)


def expected_gain(
  memory_bytes: int, measured: tuple[Measured, ...] = MEASURED
) -> float:
  """By how many points codes are ahead, between the measured budgets.

  Beyond them it is that of the nearest one.

  Args:
    memory_bytes: the budget, 1 or more.
    measured: by rising budget.
  """
  points = [(math.log(m.memory_bytes), m.codes - m.sheets) for m in measured]
  place = math.log(memory_bytes)
  if place <= points[0][0]:
    return points[0][1]
  for (x0, y0), (x1, y1) in itertools.pairwise(points):
    if place <= x1:
      return y0 + (y1 - y0) * (place - x0) / (x1 - x0)
  return points[-1][1]


def choose(config: ml_collections.ConfigDict) -> str | None:
  """Replaces "auto" in `config.method` and `config.codec`.

  Whoever names a codec wants codes; whoever names a method that needs a codec
  gets the smallest one.

  Args:
    config: of a new learner, changed in place.

  Returns:
    What was chosen and why, for people; None if the method was given.
  """
  is_open, names_codec = config.method == AUTO, config.codec != AUTO
  budget = config.memory.total_bytes
  if not names_codec:
    config.codec = _CODEC
  if not is_open:
    return None
  if names_codec:
    config.method = _CODES
    return f"bit-strings ({_CODES}), because a codec is named"
  if not budget:
    config.method = _SHEETS
    return f"contact sheets ({_SHEETS}), because there is no byte budget"
  gain = expected_gain(budget)
  config.method = _CODES if gain >= _LEAD else _SHEETS
  told = (
    f"{gain:+.1f} points expected of codes at {budget:,} bytes, from "
    f"measurements on CIFAR-100"
  )
  if config.method == _CODES:
    return f"bit-strings ({_CODES}, codec {_CODEC}): {told}"
  return f"contact sheets ({_SHEETS}): only {told}"
