"""Every image is kept with some loss; some have a raw twin.

Memories of codes and of lossy files share this: which raw images are at hand
for Information Back (section 5 of the paper), and in which order images are
kept. The remembered images of a class begin with those of its raw exemplars, in
the same order, so that nothing need be stored to tell which belong together.
"""

import abc
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.examples import Examples, concatenate, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.replay import image_formats
from ibdrr_tf.replay.exemplars import Exemplars
from ibdrr_tf.replay.feeds import Feed, Twins
from ibdrr_tf.replay.image_store import EncodedImages
from ibdrr_tf.replay.memory import (
  Embeds,
  Memory,
  Setting,
  alike,
  keep_alike,
)

__all__ = ["ReplayedMemory", "order_of"]

# Fewer images often cost more bytes each: aim a little lower than fits.
_CAUTION = 0.98
# Raw images that are encoded to guess the size of exemplars.
_SAMPLE = 32


class ReplayedMemory(Memory):
  """Remembers all images seen, with some loss.

  Args:
    setting: where and how.
    step: see `Memory`.
    raw: which raw images are at hand, of `choices.RAW_IMAGES`; None
      takes `memory.information_back`.

  Attributes:
    raw: see above.
  """

  def __init__(
    self, setting: Setting, step: int | None = -1, *, raw: str | None = None
  ):
    super().__init__(setting, step)
    self.raw = raw or setting.config.memory.information_back
    self._exemplars = Exemplars(self)

  @abc.abstractmethod
  def examples(self, task: Task) -> Feed:
    """Remembered images, then new ones with the same loss."""

  def stored_bytes(self) -> dict[str, int]:
    """Manifest and, where there are some, exemplars."""
    stored = super().stored_bytes()
    if self.raw != "exemplars":
      return stored
    return {**stored, "raw_exemplars": self._exemplars.bytes}

  def _twins(self, task: Task, labels: np.ndarray) -> Twins | None:
    """Raw images of the step's examples, as far as they are of any use.

    Args:
      task: the step.
      labels: int32 [n], of all examples; those of `task.new` come last.
    """
    if self.raw == "none" and not self.config.replay.raw_share:
      return None
    old = len(labels) - len(task.new)
    number = np.maximum(np.arange(len(labels), dtype=np.int64) - old, -1)
    if self.raw != "exemplars":
      return Twins(task.new, number)
    images, classes = self._exemplars.read()
    number[number >= 0] += len(classes)
    for label in np.unique(classes):
      mine = np.flatnonzero(classes == label)
      number[np.flatnonzero(labels[:old] == label)[: len(mine)]] = mine
    return Twins(concatenate([in_memory(images, classes), task.new]), number)

  @abc.abstractmethod
  def _labels(self) -> np.ndarray:
    """Labels of remembered images to learn from, int32 [n]."""

  def _choose_exemplars(self, task: Task, network: Embeds) -> np.ndarray:
    """Indices of new images to keep raw; none unless the method keeps some.

    Exemplars belong to the first images of their class. So a known class gets
    more of them only while every image of it has one.
    """
    if self.raw != "exemplars":
      return np.zeros([0], np.int64)
    chosen = self._exemplars.choose(task, network)
    classes = task.new.labels[chosen]
    if np.all(classes >= task.old_classes):
      return chosen
    images, raw = (
      np.bincount(labels, minlength=task.classes)
      for labels in (self._labels(), self._exemplars.labels())
    )
    return chosen[images[classes] == raw[classes]]

  def _guess_exemplars(self, task: Task) -> int:
    """About how many bytes raw exemplars will take after this step."""
    if self.raw != "exemplars" or not len(task.new):
      return self._exemplars.bytes
    some = task.new.read(tf.range(min(_SAMPLE, len(task.new)), dtype=tf.int64))
    sizes = map(len, image_formats.encode(some.numpy(), "lossless"))
    count = self.config.memory.exemplars_per_class * len(task.new_labels)
    mean = sum(sizes) / len(some)
    return self._exemplars.bytes + round(1.05 * count * mean)

  def _all_exemplars(self, task: Task, chosen: np.ndarray) -> EncodedImages:
    """Exemplars in force, and the new ones."""
    images = task.new.read(tf.constant(chosen)).numpy()
    new_only = Task(task.step, task.new, None, task.old_classes, task.classes)
    added = self._exemplars.encode(new_only, chosen, images)
    return EncodedImages.join([self._exemplars.store.read(), added])

  def _fewer(
    self,
    labels: np.ndarray,
    held_out: np.ndarray,
    size_of: Callable[[np.ndarray], int],
    size: int,
    room: float,
  ) -> tuple[np.ndarray, int]:
    """Gives up images, of all classes alike, until the others fit.

    Args:
      labels: int32 [n], of all images.
      held_out: bool [n].
      size_of: bytes of some of the images, given as indices.
      size: bytes of all of them.
      room: bytes that they may have.

    Returns:
      Indices of the images that stay, and how many of a class may stay.
    """
    kept, count = np.arange(len(labels)), len(labels)
    first = self._with_twins(labels, held_out)
    while size > room:
      before = len(kept)
      count = alike(labels, held_out, _CAUTION * room / size * before)
      kept = keep_alike(labels, held_out, count, (self.config.seed,), first)
      size = size_of(kept)
      if size > room and len(kept) == before:  # One of each class is left.
        raise self._too_small(self.config.memory.total_bytes - room + size)
    self.dropped = len(labels) - len(kept)
    return kept, count

  def _with_twins(self, labels: np.ndarray, held_out: np.ndarray) -> np.ndarray:
    """Whether an image may be that of an exemplar, which must stay first."""
    first = np.zeros(len(labels), bool)
    if self.raw == "exemplars":
      most = self.config.memory.exemplars_per_class
      for label in np.unique(labels):
        members = np.flatnonzero((labels == label) & ~held_out)
        first[members[:most]] = True
    return first


def order_of(new: Examples, chosen: np.ndarray) -> np.ndarray:
  """The order in which new images are kept: class by class, chosen ones first.

  Args:
    new: the new images.
    chosen: indices of those with a raw twin, int64 [m].

  Returns:
    int64 [n].
  """
  rank = np.full(len(new), len(new))
  rank[chosen] = np.arange(len(chosen))
  return np.lexsort([rank, new.labels])
