"""Labels that do not overlap, and families of methods."""

import itertools

import numpy as np
import pytest

from ibdrr_tf import choices
from ibdrr_tf.evaluation import chart_style


def test_every_method_has_a_family_and_ours_are_the_codes():
  for group, methods in choices.METHOD_GROUPS.items():
    for method in methods:
      family = chart_style.family_of(method)
      assert group in family.groups
      assert family.is_ours == (group == "ours")
  assert chart_style.family_of("of_a_plugin").key == "other"
  methods = ["lwf", "of_a_plugin", "finetune", "drr", "gfr"]
  found = [family.key for family in chart_style.families_of(methods)]
  assert found == ["codes", "features", "bounds", "other"]


def test_labels_move_as_little_as_possible():
  assert chart_style.spread_labels([10, 50, 30], 5, 0, 100) == [10, 50, 30]
  # Two that collide move by the same amount; against a grid of all places.
  wanted, gap = [20.0, 22.0, 23.0, 60.0], 4.0
  placed = chart_style.spread_labels(wanted, gap, 0, 100)
  grid = np.arange(10, 35, 0.5)
  best = min(
    sum((a - b) ** 2 for a, b in zip(wanted, trial, strict=False))
    for trial in itertools.combinations(grid, 3)
    if trial[1] - trial[0] >= gap and trial[2] - trial[1] >= gap
  )
  cost = sum((a - b) ** 2 for a, b in zip(wanted, placed, strict=True))
  assert cost <= best + 1e-9
  assert np.diff(placed).min() >= gap - 1e-9


@pytest.mark.parametrize("wanted", [[0.0] * 6, [100.0] * 6, [99, 1, 98, 2]])
def test_labels_stay_on_the_axis_and_in_order(wanted):
  placed = chart_style.spread_labels(wanted, 5, 0, 100)
  assert min(placed) >= 0 and max(placed) <= 100
  in_order = np.array(placed)[np.argsort(wanted, kind="stable")]
  assert np.diff(in_order).min() >= 5 - 1e-9


def test_labels_of_crowded_points_cover_nothing():
  generator = np.random.default_rng(0)
  points = [tuple(p) for p in generator.normal(200, 12, (10, 2))]
  widths, height = [60.0 + 5 * k for k in range(10)], 14.0
  bounds = (0.0, 0.0, 500.0, 400.0)
  placed = chart_style.place_labels(points, widths, height, bounds)
  boxes = [
    (x, y - height / 2, x + w, y + height / 2)
    for (x, y), w in zip(placed, widths, strict=True)
  ]
  for one, other in itertools.combinations(boxes, 2):
    assert (
      one[2] <= other[0]
      or other[2] <= one[0]
      or one[3] <= other[1]
      or other[3] <= one[1]
    )
  for box in boxes:
    assert bounds[0] <= box[0] and box[2] <= bounds[2]
    for x, y in points:
      assert not (box[0] < x < box[2] and box[1] < y < box[3])
