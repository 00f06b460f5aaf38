"""Information-Back Discrete Representation Replay.

Section 5 of the paper: DRR whose classifier is also drawn towards what it sees
in raw images, as far as they are at hand. See `classifiers/information_back`.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.data import source, stream
from ibdrr_tf.methods.drr import DRR
from ibdrr_tf.replay import pipeline
from ibdrr_tf.replay.exemplars import ExemplarStore
from ibdrr_tf.replay.memory import Codes

__all__ = ["IBDRR", "IBDRRStar"]


class IBDRRStar(DRR):
  """IB-DRR*: the raw images of the new classes, and no others."""

  def twins(self, phase: int, codes: Codes) -> pipeline.Twins:
    """The raw images of the new classes."""
    return self._new_twins(phase, codes)

  def compile_options(
    self, examples: pipeline.ReplayedExamples
  ) -> dict[str, Any]:
    """Adds the term that looks back."""
    config = self.config.ib
    return {
      **super().compile_options(examples),
      "weight": config.weight,
      "feature": config.feature,
      "batch_norm": config.batch_norm,
    }


class IBDRR(IBDRRStar):
  """IB-DRR: a few raw exemplars of each old class as well.

  The codes of a class begin with those of its exemplars, in the same order, so
  that nothing need be stored to tell which belong together.
  """

  def __init__(self, *args: Any, **kwargs: Any):
    super().__init__(*args, **kwargs)
    self._exemplars = ExemplarStore(self.workdir / "memory")

  def twins(self, phase: int, codes: Codes) -> pipeline.Twins:
    """The raw images of the new classes and the exemplars of the old ones."""
    new = self._new_twins(phase, codes)
    if not phase:
      return new
    images, labels = self._exemplars.read(phase - 1)
    kept = source.in_memory(images, labels)
    number = np.where(new.number >= 0, new.number + len(labels), -1)
    for label in np.unique(labels):
      mine = np.flatnonzero(labels == label)
      number[np.flatnonzero(codes.labels == label)[: len(mine)]] = mine
    raw = stream.concatenate([stream.Examples(kept.labels, kept.read), new.raw])
    return pipeline.Twins(raw, number)

  def order_to_remember(self, phase: int) -> np.ndarray:
    """Class by class, exemplars first."""
    new = self.new_examples(phase)
    rank = np.ones(len(new), np.int64) * len(new)
    chosen = self.choose_exemplars(new)
    rank[chosen] = np.arange(len(chosen))
    return np.lexsort([rank, new.labels])

  def remember(self, phase: int) -> None:
    """Keeps exemplars, then all codes."""
    new = self.new_examples(phase)
    chosen = self.choose_exemplars(new)
    images = new.read(tf.constant(chosen)).numpy()
    self.team.on_chief(
      lambda: self._exemplars.write(phase, images, new.labels[chosen])
    )
    super().remember(phase)

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """Bit-strings, codec and exemplars."""
    return {
      **super().stored_bytes(phase),
      "raw_exemplars": self._exemplars.stored_bytes,
    }
