"""Expected values are from printed tables, or were worked out by hand."""

import numpy as np
import pytest

from ibdrr_tf.evaluation import paired
from ibdrr_tf.evaluation.predictions import Predictions


@pytest.mark.parametrize(
  ("freedom", "quantile"),
  [(1, 12.706), (2, 4.303), (4, 2.776), (5, 2.571), (9, 2.262), (120, 1.980)],
)
def test_quantiles_of_student_s_t(freedom, quantile):
  assert paired.t_quantile(freedom) == pytest.approx(quantile, abs=5e-4)


def test_other_levels():
  assert paired.t_quantile(10, 0.9) == pytest.approx(1.812, abs=5e-4)


def test_interval_by_hand():
  # Mean 2, deviation 1, error 1 / sqrt(3), t of two degrees of freedom 4.303.
  mean, half = paired.t_interval([1.0, 2.0, 3.0])
  assert mean == 2.0
  assert half == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
  assert paired.t_interval([5.0]) == (5.0, None)


def marks(both, first, second, none):
  """Which images two methods name right."""
  pairs = [(1, 1)] * both + [(1, 0)] * first + [(0, 1)] * second
  return np.array(pairs + [(0, 0)] * none, bool).T


def test_mcnemar_by_hand():
  # 1 against 5 of six: 2 (C(6,0) + C(6,1)) / 64 = 14 / 64.
  assert paired.mcnemar(*marks(9, 1, 5, 3)) == 14 / 64
  assert paired.mcnemar(*marks(9, 5, 1, 3)) == 14 / 64
  # 0 against 8: 2 / 256.
  assert paired.mcnemar(*marks(0, 0, 8, 0)) == 2 / 256
  assert paired.mcnemar(*marks(4, 3, 3, 0)) == 1.0
  assert paired.mcnemar(*marks(4, 0, 0, 2)) == 1.0
  assert 0 < paired.mcnemar(*marks(0, 900, 1100, 0)) < 1e-4


def run(accuracy, seed, right=None, order="1"):
  made = {
    "average_accuracy": accuracy,
    "seed": seed,
    "data": {"class_order": order},
  }
  if right is not None:
    labels = np.arange(len(right)) % 3
    named = np.where(right, labels, 3)
    made["predictions"] = Predictions.none(labels).add(3, named)
  return made


def test_one_pair_is_judged_by_its_images():
  first, second = marks(5, 0, 8, 5)
  found = paired.compare_groups([run(60.0, 0, second)], [run(50.0, 0, first)])
  assert found == paired.Paired(10.0, None, 1, (2 / 256,), False)
  first, second = marks(5, 1, 5, 5)
  found = paired.compare_groups([run(60.0, 0, second)], [run(50.0, 0, first)])
  assert found.indistinguishable and found.p_values == (14 / 64,)
  # Without predictions, nothing can be said.
  found = paired.compare_groups([run(60.0, 0)], [run(50.0, 0, first)])
  assert found.indistinguishable is None and found.p_values == ()


def test_only_runs_of_one_order_and_seed_are_paired():
  group = [run(60.0, 0), run(70.0, 1), run(80.0, 1, order="2")]
  reference = [run(50.0, 1), run(10.0, 0, order="3")]
  found = paired.compare_groups(group, reference)
  assert found.difference == 20.0 and found.pairs == 1
  assert paired.compare_groups(group, [run(50.0, 9)]) is None
  assert paired.compare_groups([run(None, 1)], reference) is None
