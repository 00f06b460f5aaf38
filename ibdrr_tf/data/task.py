"""One step of learning: the new images, and nothing else."""

import dataclasses

from ibdrr_tf.data.examples import Examples

__all__ = ["Task"]


@dataclasses.dataclass(frozen=True)
class Task:
  """What a step may see besides the state that the step before has left.

  Labels are numbers in the learner's own list of classes, which only grows.
  New images may be of new classes, of known ones, or of both.

  Attributes:
    step: number of the step; the first is 0.
    new: raw images to learn from.
    held_out: raw images of the same classes that only test; None without any.
    old_classes: number of classes known before the step.
    classes: number of classes known after it.
  """

  step: int
  new: Examples
  held_out: Examples | None
  old_classes: int
  classes: int

  @property
  def new_labels(self) -> range:
    """Labels of the classes that this step introduces; there may be none."""
    return range(self.old_classes, self.classes)
