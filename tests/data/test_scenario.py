import numpy as np
import pytest

from ibdrr_tf.data import scenario as scenarios
from ibdrr_tf.errors import UserError


def make(**options):
  settings = {"classes": 0, "base_classes": 0, "phases": 5} | options
  order = scenarios.class_order("1993", 100)
  return scenarios.make_scenario(order, **settings)


def test_order_1993_begins_as_in_the_literature():
  order = scenarios.class_order("1993", 100)
  assert order[:10] == (68, 56, 78, 8, 23, 84, 90, 65, 74, 76)
  assert sorted(order) == list(range(100))


def test_orders_natural_explicit_and_by_another_seed():
  assert scenarios.class_order("natural", 4) == (0, 1, 2, 3)
  assert scenarios.class_order("3, 1,2", 4) == (3, 1, 2)
  assert scenarios.class_order("7", 100) != scenarios.class_order("1993", 100)


@pytest.mark.parametrize(
  ("order", "part"),
  [
    ("nature", "is no class order"),
    ("1,1", "twice"),
    ("0,9", "classes 0 to 3"),
    ("-5", "is no seed"),
  ],
)
def test_bad_orders_are_named(order, part):
  with pytest.raises(UserError, match=part):
    scenarios.class_order(order, 4)


def test_phases_of_the_paper():
  scenario = make()
  assert scenario.boundaries == (50, 60, 70, 80, 90, 100)
  assert list(scenario.phases) == [0, 1, 2, 3, 4, 5]
  assert scenario.new_labels(0) == range(0, 50)
  assert scenario.new_labels(2) == range(60, 70)
  assert scenario.seen_labels(2) == range(70)
  assert make(phases=25).boundaries[1] == 52


def test_first_classes_of_an_order():
  scenario = make(classes=20, base_classes=10)
  assert scenario.boundaries == (10, 12, 14, 16, 18, 20)
  assert len(scenario.order) == 20


def test_every_class_has_one_label_and_unused_ones_have_none():
  scenario = scenarios.make_scenario(
    (5, 0, 3, 1), classes=3, base_classes=1, phases=2
  )
  labels = scenario.label_of(np.array([5, 3, 1, 0, 5]))
  assert labels.tolist() == [0, 2, -1, 1, 0]


@pytest.mark.parametrize("phases", [0, -1, 3, 51])
def test_phases_that_do_not_divide_name_the_allowed_numbers(phases):
  with pytest.raises(UserError, match="1, 2, 5, 10, 25, 50"):
    make(phases=phases)


@pytest.mark.parametrize(
  ("options", "part"),
  [
    ({"classes": 101}, "2 to 100"),
    ({"classes": 1}, "2 to 100"),
    ({"base_classes": 100}, "1 to 99"),
  ],
)
def test_sizes_out_of_range_are_named(options, part):
  with pytest.raises(UserError, match=part):
    make(**options)
