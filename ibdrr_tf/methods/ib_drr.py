"""Information-Back Discrete Representation Replay.

Section 5 of the paper: DRR whose classifier is also drawn towards what it sees
in raw images, as far as they are at hand. See `classifiers/information_back`.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.data import source, stream
from ibdrr_tf.methods.drr import DRR
from ibdrr_tf.methods.replaying import Replaying
from ibdrr_tf.replay import exemplars, pipeline

__all__ = ["IBDRR", "IBDRRStar", "InformationBack"]


class InformationBack(Replaying):
  """Adds the term that looks back, whatever form images are replayed in.

  To be combined with a method that says how they are kept. The remembered
  images of a class begin with those of its exemplars, in the same order, so
  that nothing need be stored to tell which belong together.
  """

  def __init__(self, *args: Any, **kwargs: Any):
    super().__init__(*args, **kwargs)
    self._exemplars = exemplars.ExemplarStore(
      self.workdir / "memory", self.scenario.boundaries
    )

  @property
  def information_back(self) -> str:
    """Raw images at hand: one of `information_back.RAW_IMAGES`."""
    return self.config.memory.information_back

  def twins(self, phase: int, labels: np.ndarray) -> pipeline.Twins | None:
    """Raw images of the phase's examples, as far as they are at hand."""
    if self.information_back == "none":
      return super().twins(phase, labels)
    return self.raw_at_hand(phase, labels)

  def raw_at_hand(self, phase: int, labels: np.ndarray) -> pipeline.Twins:
    """The raw images of the new classes, and exemplars of the old ones."""
    new = super().raw_at_hand(phase, labels)
    if not phase or self.information_back != "exemplars":
      return new
    images, classes = self._exemplars.read(phase - 1)
    kept = source.in_memory(images, classes)
    number = np.where(new.number >= 0, new.number + len(classes), -1)
    for label in np.unique(classes):
      mine = np.flatnonzero(classes == label)
      number[np.flatnonzero(labels == label)[: len(mine)]] = mine
    raw = stream.concatenate([stream.Examples(kept.labels, kept.read), new.raw])
    return pipeline.Twins(raw, number)

  def compile_options(self, examples: pipeline.Replayed) -> dict[str, Any]:
    """Adds L_sim and its weight lambda."""
    options = super().compile_options(examples)
    if self.information_back == "none":
      return options
    config = self.config.ib
    return {
      **options,
      "weight": config.weight,
      "feature": config.feature,
      "batch_norm": config.batch_norm,
    }

  def keep_raw(self, phase: int, new: stream.Examples) -> np.ndarray:
    """Keeps exemplars, before the images among which they will be first."""
    if self.information_back != "exemplars":
      return super().keep_raw(phase, new)
    chosen = self.choose_exemplars(new)
    images = new.read(tf.constant(chosen)).numpy()
    labels = new.labels[chosen]
    self.team.on_chief(lambda: self._exemplars.write(phase, images, labels))
    return chosen

  def raw_bytes(self) -> int:
    """The most that the exemplars of all classes of the run can take."""
    if self.information_back != "exemplars":
      return super().raw_bytes()
    count = self.exemplars_per_class
    return exemplars.stored_size(self.exemplar_sizes(count), count)

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """What the method keeps otherwise, and exemplars."""
    stored = super().stored_bytes(phase)
    if self.information_back != "exemplars":
      return stored
    return {**stored, "raw_exemplars": self._exemplars.stored_bytes}


class IBDRRStar(InformationBack, DRR):
  """IB-DRR*: the raw images of the new classes, and no others."""

  information_back = "star"


class IBDRR(InformationBack, DRR):
  """IB-DRR: a few raw exemplars of each old class as well."""

  information_back = "exemplars"
