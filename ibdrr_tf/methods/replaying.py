"""What methods share that replay every image, with some loss."""

import abc
from typing import Any

import numpy as np

from ibdrr_tf.classifiers.information_back import ReplayClassifier
from ibdrr_tf.data import stream
from ibdrr_tf.methods.base import Method
from ibdrr_tf.replay import pipeline

__all__ = ["Replaying"]


class Replaying(Method):
  """Trained from scratch on all images seen, as memory gives them back.

  The examples of a phase are those of old classes, as they are remembered, then
  those of new classes in the order of `new_examples`, with the same loss. Some
  have a twin, the raw image itself. A subclass says how images are kept.
  """

  classifier_class = ReplayClassifier

  def twins(self, phase: int, labels: np.ndarray) -> pipeline.Twins | None:
    """Raw images of the phase's examples, if they are of any use.

    Args:
      phase: which is learned.
      labels: int32 [n], of all its examples.
    """
    if not self.config.replay.raw_share:
      return None
    return self.raw_at_hand(phase, labels)

  def raw_at_hand(self, phase: int, labels: np.ndarray) -> pipeline.Twins:
    """The raw images of the new classes, which come last."""
    new = self.new_examples(phase)
    number = np.arange(len(labels), dtype=np.int64) - (len(labels) - len(new))
    return pipeline.Twins(new, np.maximum(number, -1))

  def compile_options(self, examples: pipeline.Replayed) -> dict[str, Any]:
    """Images are made ready within the training step."""
    return {"prepare": examples.preparation(self.config.classifier.padding)}

  def remember(self, phase: int) -> None:
    """Keeps all images seen, class by class."""
    if self.remembers(phase):
      return  # Killed after the change, before the phase was written down.
    new = self.new_examples(phase)
    first = self.keep_raw(phase, new)
    rank = np.full(len(new), len(new))
    rank[first] = np.arange(len(first))
    self.keep(phase, np.lexsort([rank, new.labels]))

  @abc.abstractmethod
  def remembers(self, phase: int) -> bool:
    """Whether `keep` has been done for a phase."""

  @abc.abstractmethod
  def keep(self, phase: int, order: np.ndarray) -> None:
    """Keeps the images of a phase, beside those of earlier ones.

    Args:
      phase: which has been learned.
      order: int64 [n], in which its new examples are kept.
    """

  def keep_raw(self, phase: int, new: stream.Examples) -> np.ndarray:
    """Keeps raw images of some new examples; none unless overridden.

    Returns:
      int64 [m], their indices. They will be the first of their classes.
    """
    return np.zeros([0], np.int64)

  def raw_bytes(self) -> int:
    """The most that `keep_raw` can have written after the last phase."""
    return 0
