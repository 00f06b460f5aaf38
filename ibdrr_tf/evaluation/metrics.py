"""Accuracy, forgetting and transfer of a class-incremental run.

All of them start from the table a[k][j]: the accuracy after phase k, in
percent, on the test images of the classes that phase j introduced. Groups are
the real phases, so that the base phase is one group however many classes it
has.
"""

from collections.abc import Sequence

import numpy as np

__all__ = [
  "accuracy",
  "accuracy_by_group",
  "average_accuracy",
  "backward_transfer",
  "base_drop",
  "confusion_matrix",
  "forgetting",
  "group_confusion",
  "old_and_new",
]


def confusion_matrix(
  labels: np.ndarray, predictions: np.ndarray, classes: int
) -> np.ndarray:
  """Counts predictions: int64 [classes, classes], true class by row."""
  matrix = np.zeros((classes, classes), np.int64)
  np.add.at(matrix, (labels, predictions), 1)
  return matrix


def accuracy(confusion: np.ndarray) -> float:
  """Share of test images whose class was named, in percent."""
  return 100.0 * float(np.trace(confusion)) / float(confusion.sum())


def accuracy_by_group(
  confusion: np.ndarray, boundaries: Sequence[int]
) -> list[float]:
  """Accuracy on the classes of each phase, over all classes seen, in percent.

  Args:
    confusion: int [classes, classes], true class by row.
    boundaries: classes seen after each phase; the last is all of them.
  """
  correct = np.diagonal(confusion)
  count = confusion.sum(axis=1)
  starts = [0, *boundaries[:-1]]
  return [
    100.0 * float(correct[a:b].sum()) / float(count[a:b].sum())
    for a, b in zip(starts, boundaries, strict=True)
  ]


def group_confusion(
  confusion: np.ndarray, boundaries: Sequence[int]
) -> np.ndarray:
  """Confusion between the classes of the phases, in percent of a row.

  Args:
    confusion: int [classes, classes], true class by row.
    boundaries: classes seen after each phase; the last is all of them.

  Returns:
    float64 [phases, phases]; a row is 0 where there are no images.
  """
  starts = [0, *boundaries[:-1]]
  sums = np.add.reduceat(np.add.reduceat(confusion, starts, 0), starts, 1)
  return 100.0 * sums / np.maximum(sums.sum(axis=1, keepdims=True), 1)


def old_and_new(
  labels: np.ndarray, predicted: np.ndarray, old: int
) -> dict[str, list[float]]:
  """How images of old and of new classes are named, in percent.

  Args:
    labels: int [n].
    predicted: int [n].
    old: number of old classes, whose labels come first.

  Returns:
    For `old` and `new`: the share that is right, that is wrong and called an
    old class, and that is wrong and called a new one.
  """
  right, is_old = labels == predicted, predicted < old
  result = {}
  for kind, chosen in (("old", labels < old), ("new", labels >= old)):
    count = max(int(chosen.sum()), 1)
    result[kind] = [
      100.0 * float(np.sum(part & chosen)) / count
      for part in (right, ~right & is_old, ~right & ~is_old)
    ]
  return result


def average_accuracy(
  accuracies: Sequence[float], *, with_base: bool
) -> float | None:
  """Mean over phases of the accuracy on all classes seen so far.

  Args:
    accuracies: one for each phase; the first is the base phase.
    with_base: False is the IB-DRR paper's metric; True is what LUCIR, PODNet,
      DER and PyCIL print.

  Returns:
    None while only the base phase, which does not count, is done.
  """
  chosen = accuracies if with_base else accuracies[1:]
  return float(np.mean(chosen)) if len(chosen) else None


def base_drop(table: Sequence[Sequence[float]]) -> float | None:
  """How far accuracy on the base classes has fallen since the base phase.

  `forgetting` counts a phase of two classes as much as the base phase.

  Args:
    table: a[k][j] for j <= k.
  """
  return table[0][0] - table[-1][0] if len(table) > 1 else None


def forgetting(table: Sequence[Sequence[float]]) -> float | None:
  """How far below its best each earlier phase has fallen, on average.

  Chaudhry et al. (2018): the mean over groups j < K of
  max_{j <= k < K} a[k][j] - a[K][j], where K is the last phase.

  Args:
    table: a[k][j] for j <= k.
  """
  last = table[-1]
  drops = [
    max(row[j] for row in table[j:-1]) - last[j] for j in range(len(last) - 1)
  ]
  return float(np.mean(drops)) if drops else None


def backward_transfer(table: Sequence[Sequence[float]]) -> float | None:
  """What later phases did to each earlier one, on average.

  Lopez-Paz and Ranzato (2017): the mean over groups j < K of a[K][j] - a[j][j].

  Args:
    table: a[k][j] for j <= k.
  """
  last = table[-1]
  changes = [last[j] - table[j][j] for j in range(len(last) - 1)]
  return float(np.mean(changes)) if changes else None
