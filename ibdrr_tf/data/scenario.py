"""Which classes are learned when: class order, base phase and increments."""

import dataclasses

import numpy as np

from ibdrr_tf.errors import UserError

__all__ = ["Scenario", "class_order", "make_scenario"]


@dataclasses.dataclass(frozen=True)
class Scenario:
  """The phases of a class-incremental run.

  A class is known by two numbers: the *source class* of the data set, and its
  *label*, the position in the order in which classes are learned. Classifiers
  only see labels, so that the head of each phase extends that of the one
  before.

  Attributes:
    order: source classes in the order in which they are learned.
    boundaries: number of classes seen after each phase; the first entry is the
      base phase, phase 0.
  """

  order: tuple[int, ...]
  boundaries: tuple[int, ...]

  @property
  def phases(self) -> range:
    """All phases, the base phase included."""
    return range(len(self.boundaries))

  def classes_seen(self, phase: int) -> int:
    """Number of classes seen up to and including a phase."""
    return self.boundaries[phase]

  def new_labels(self, phase: int) -> range:
    """Labels that a phase introduces."""
    start = self.boundaries[phase - 1] if phase else 0
    return range(start, self.boundaries[phase])

  def seen_labels(self, phase: int) -> range:
    """Labels seen up to and including a phase."""
    return range(self.boundaries[phase])

  def label_of(self, source_classes: np.ndarray) -> np.ndarray:
    """Maps source classes, int [n], to labels, int32 [n]; -1 if never used."""
    table = np.full(max(max(self.order), source_classes.max()) + 1, -1)
    table[list(self.order)] = np.arange(len(self.order))
    return table[source_classes].astype(np.int32)


def class_order(order: str, num_classes: int) -> tuple[int, ...]:
  """Reads the order in which classes are learned.

  Args:
    order: a seed, such as "1993" (`numpy.random.seed(1993)` and a shuffle, as
      in most papers of the field), "natural", or class numbers parted by
      commas.
    num_classes: number of classes of the data set.

  Returns:
    Source classes; all of them unless the order names fewer.
  """
  hint = "give a seed such as 1993, 'natural', or class numbers like 3,1,2"
  if order == "natural":
    return tuple(range(num_classes))
  try:
    numbers = [int(number) for number in order.split(",")]
  except ValueError as error:
    raise UserError(
      f"config.data.class_order={order!r} is no class order: {hint}."
    ) from error
  if len(numbers) == 1:
    if not 0 <= numbers[0] < 2**32:
      raise UserError(
        f"config.data.class_order={order} is no seed: give 0 to 2**32 - 1."
      )
    shuffled = np.arange(num_classes)
    np.random.RandomState(numbers[0]).shuffle(shuffled)
    return tuple(shuffled.tolist())
  if len(set(numbers)) < len(numbers):
    raise UserError(f"config.data.class_order={order} names a class twice.")
  if not all(0 <= number < num_classes for number in numbers):
    raise UserError(
      f"config.data.class_order={order} names a class that is not there: the "
      f"data set has classes 0 to {num_classes - 1}."
    )
  return tuple(numbers)


def make_scenario(
  order: tuple[int, ...], *, classes: int, base_classes: int, phases: int
) -> Scenario:
  """Divides an order of classes into a base phase and equal increments.

  Args:
    order: source classes in the order in which they are learned.
    classes: how many of them to use, 0 for all.
    base_classes: classes of the base phase, 0 for half of them.
    phases: number of phases after the base phase.
  """
  classes = classes or len(order)
  if not 2 <= classes <= len(order):
    raise UserError(
      f"config.data.classes={classes} is not possible: the data set and its "
      f"class order offer 2 to {len(order)} classes (0 takes all)."
    )
  base = base_classes or classes // 2
  if not 1 <= base < classes:
    raise UserError(
      f"config.scenario.base_classes={base} is not possible: of {classes} "
      f"classes, 1 to {classes - 1} can be base classes (0 takes half)."
    )
  rest = classes - base
  if phases < 1 or rest % phases:
    allowed = [n for n in range(1, rest + 1) if rest % n == 0]
    raise UserError(
      f"phases={phases} does not divide the {rest} classes that follow the "
      f"{base} base classes: choose --phases from "
      f"{', '.join(map(str, allowed))}, or another "
      f"--config.scenario.base_classes."
    )
  step = rest // phases
  return Scenario(
    order=tuple(order[:classes]),
    boundaries=tuple(base + step * phase for phase in range(phases + 1)),
  )
