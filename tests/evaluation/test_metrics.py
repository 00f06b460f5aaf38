"""Every expected value here was worked out by hand."""

import numpy as np
import pytest

from ibdrr_tf.evaluation import metrics

# Accuracy after each of three phases (rows) on the classes of each (columns).
TABLE = [[80.0], [60.0, 90.0], [50.0, 95.0, 70.0]]


def test_forgetting_is_the_fall_from_the_best():
  # Group 0: max(80, 60) - 50 = 30. Group 1: 90 - 95 = -5. Mean 12.5.
  assert metrics.forgetting(TABLE) == pytest.approx(12.5)


def test_forgetting_takes_the_best_not_the_first():
  table = [[40.0], [70.0, 90.0], [50.0, 80.0, 70.0]]
  # Group 0: 70 - 50 = 20; group 1: 90 - 80 = 10.
  assert metrics.forgetting(table) == pytest.approx(15.0)
  # Group 0: 50 - 40 = 10; group 1: 80 - 90 = -10.
  assert metrics.backward_transfer(table) == pytest.approx(0.0)


def test_backward_transfer_compares_with_when_it_was_learned():
  # Group 0: 50 - 80 = -30. Group 1: 95 - 90 = 5. Mean -12.5.
  assert metrics.backward_transfer(TABLE) == pytest.approx(-12.5)


def test_base_drop_looks_at_the_base_classes_alone():
  assert metrics.base_drop(TABLE) == 30.0
  assert metrics.base_drop(TABLE[:1]) is None


def test_nothing_to_forget_after_the_base_phase():
  assert metrics.forgetting([[80.0]]) is None
  assert metrics.backward_transfer([[80.0]]) is None
  assert metrics.average_accuracy([80.0], with_base=False) is None


def test_averages_with_and_without_the_base_phase():
  accuracies = [90.0, 70.0, 50.0]
  assert metrics.average_accuracy(accuracies, with_base=True) == 70.0
  assert metrics.average_accuracy(accuracies, with_base=False) == 60.0


def test_phases_of_unequal_size():
  """50 base classes and 5 phases of 10, two test images a class."""
  boundaries = [50, 60, 70, 80, 90, 100]
  labels = np.repeat(np.arange(100), 2)
  predictions = labels.copy()
  predictions[labels < 50] = 99  # The base phase is wholly forgotten,
  predictions[np.flatnonzero((labels >= 90) & (labels < 95))] = 0
  confusion = metrics.confusion_matrix(labels, predictions, 100)
  assert metrics.accuracy(confusion) == pytest.approx(45.0)
  groups = metrics.accuracy_by_group(confusion, boundaries)
  assert groups == pytest.approx([0, 100, 100, 100, 100, 50])
  # Each phase is one group, however many classes it has.
  table = (
    [[80.0]] + [[70.0] + [100.0] * phase for phase in range(1, 5)] + [groups]
  )
  assert metrics.forgetting(table) == pytest.approx((80 + 4 * 0) / 5)
  assert metrics.backward_transfer(table) == pytest.approx(-80 / 5)


def test_classes_with_more_images_weigh_more():
  confusion = np.array([[30, 0], [10, 0]])
  assert metrics.accuracy(confusion) == pytest.approx(75.0)
  assert metrics.accuracy_by_group(confusion, [1, 2]) == [100.0, 0.0]


def test_confusion_counts_true_by_row():
  confusion = metrics.confusion_matrix(
    np.array([0, 0, 1, 2]), np.array([0, 1, 1, 0]), 3
  )
  assert confusion.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_confusion_between_old_and_new_by_hand():
  labels = np.array([0, 0, 0, 0, 1, 1, 2, 2])
  predicted = np.array([0, 1, 2, 2, 1, 0, 2, 0])
  shares = metrics.old_and_new(labels, predicted, 2)
  # Old: of six images two are right, two are called the other old class, two
  # the new one.
  assert shares["old"] == pytest.approx([100 / 3] * 3)
  assert shares["new"] == [50.0, 50.0, 0.0]
  matrix = metrics.confusion_matrix(labels, predicted, 3)
  groups = metrics.group_confusion(matrix, (2, 3))
  np.testing.assert_allclose(groups, [[400 / 6, 200 / 6], [50, 50]])
