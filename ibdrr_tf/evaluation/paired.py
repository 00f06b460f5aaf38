"""Whether two methods differ: over seeds, and image by image.

Runs are paired by class order and seed. Over several pairs, the differences of
average accuracy have a confidence interval by Student's t. Within one pair, the
test images after the last phase that only one of both names right decide:
McNemar's test in its exact, binomial form.
"""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
  "Paired",
  "compare_groups",
  "mcnemar",
  "t_interval",
  "t_quantile",
]

_LEVEL = 0.95


@dataclasses.dataclass(frozen=True)
class Paired:
  """How the runs of one row differ from those of the reference.

  Attributes:
    difference: mean difference of average accuracy, in points.
    interval: half the width of its confidence interval; None with one pair.
    pairs: number of pairs.
    p_values: of McNemar's test within each pair whose predictions are kept.
    indistinguishable: whether the interval contains 0, or with one pair,
      whether McNemar's test finds no difference; None if nothing can be said.
  """

  difference: float
  interval: float | None
  pairs: int
  p_values: tuple[float, ...]
  indistinguishable: bool | None


def t_quantile(freedom: int, level: float = _LEVEL) -> float:
  """The t for which |T| <= t has the probability `level`.

  Args:
    freedom: degrees of freedom, 1 or more.
    level: of confidence.
  """
  low, high = 0.0, 1.0
  while _within(high, freedom) < level:
    high *= 2
  for _ in range(100):
    middle = (low + high) / 2
    is_low = _within(middle, freedom) < level
    low, high = (middle, high) if is_low else (low, middle)
  return high


def _within(t: float, freedom: int) -> float:
  """P(|T| <= t): finite sums 26.7.3 and 26.7.4 of Abramowitz and Stegun."""
  angle = math.atan(t / math.sqrt(freedom))
  square = math.cos(angle) ** 2
  is_odd = freedom % 2
  term = math.cos(angle) if is_odd else 1.0
  total = 0.0
  for k in range(freedom // 2):
    total += term
    ratio = (2 * k + 2) / (2 * k + 3) if is_odd else (2 * k + 1) / (2 * k + 2)
    term *= ratio * square
  total *= math.sin(angle)
  return 2 / math.pi * (angle + total) if is_odd else total


def t_interval(values: Sequence[float]) -> tuple[float, float | None]:
  """Mean and half the width of its 95 % confidence interval.

  Args:
    values: a sample; a single one has no interval.
  """
  mean = statistics.fmean(values)
  if len(values) < 2:
    return mean, None
  error = statistics.stdev(values) / math.sqrt(len(values))
  return mean, t_quantile(len(values) - 1) * error


def mcnemar(first: np.ndarray, second: np.ndarray) -> float:
  """The two-sided p-value of McNemar's exact test.

  Args:
    first: bool [n], which images one method names right.
    second: bool [n], the same of the other.
  """
  only_first = int(np.sum(first & ~second))
  only_second = int(np.sum(second & ~first))
  differing = only_first + only_second
  tail = sum(
    math.comb(differing, k) for k in range(min(only_first, only_second) + 1)
  )
  # Whole numbers of any size: a quotient of floats would overflow.
  return min(1.0, 2 * tail / 2**differing)


def compare_groups(
  group: list[dict[str, Any]], reference: list[dict[str, Any]]
) -> Paired | None:
  """Compares the runs of one row with those of the reference.

  Args:
    group: contents of results.json, with `predictions` where there are any.
    reference: likewise.

  Returns:
    None if no two runs have the same class order and seed, or if there is no
    phase after the base phase.
  """
  others = {_pair_key(run): run for run in reference}
  pairs = [
    (run, others[_pair_key(run)]) for run in group if _pair_key(run) in others
  ]
  name = "average_accuracy"
  pairs = [p for p in pairs if None not in (p[0][name], p[1][name])]
  if not pairs:
    return None
  mean, half = t_interval([run[name] - other[name] for run, other in pairs])
  p_values = tuple(
    mcnemar(right[0], right[1])
    for right in map(_last_right, pairs)
    if right is not None
  )
  same = None
  if half is not None:
    same = abs(mean) <= half
  elif p_values:
    same = p_values[0] > 1 - _LEVEL
  return Paired(mean, half, len(pairs), p_values, same)


def _pair_key(run: dict[str, Any]) -> tuple:
  return run.get("data", {}).get("class_order"), run["seed"]


def _last_right(
  pair: tuple[dict, dict],
) -> tuple[np.ndarray, np.ndarray] | None:
  """Which images each run names right after its last phase."""
  kept = [run.get("predictions") for run in pair]
  if any(p is None or not len(p.predicted) for p in kept):
    return None
  right = tuple(p.right(len(p.predicted) - 1) for p in kept)
  same = np.array_equal(kept[0].labels, kept[1].labels)
  return right if same and len(right[0]) == len(right[1]) else None
