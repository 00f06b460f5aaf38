"""All raw data of all classes seen, from scratch: what memory could buy."""

import numpy as np

from ibdrr_tf.data import stream
from ibdrr_tf.methods.base import Method

__all__ = ["UpperBound"]


class UpperBound(Method):
  """Joint training on raw images (UB in the paper's tables).

  It keeps the data set itself, which the ledger counts as raw pixels, three
  bytes each: that is what would have to be stored.
  """

  def examples(self, phase: int) -> stream.Examples:
    """The raw training images of all classes seen."""
    labels = self.scenario.seen_labels(phase)
    return stream.select(self.source.train, self.scenario, labels)

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """All images seen, as raw pixels."""
    images = len(self.examples(phase))
    pixels = int(np.prod(self.source.train.image_shape))
    return {"raw_exemplars": images * pixels, "images": images}
