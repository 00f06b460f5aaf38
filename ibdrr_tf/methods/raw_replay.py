"""A few raw exemplars of each old class, replayed beside the new classes."""

import tensorflow as tf

from ibdrr_tf.data import source, stream
from ibdrr_tf.methods.base import Method
from ibdrr_tf.replay.exemplars import ExemplarStore

__all__ = ["RawReplay"]


class RawReplay(Method):
  """Experience replay with k raw images a class, random or herded.

  It goes on from the last phase's weights: with so few images of old classes,
  a network trained from scratch would hardly know them.
  """

  initialize = Method._continue_from_last

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self._store = ExemplarStore(self.workdir / "memory")

  def examples(self, phase: int) -> stream.Examples:
    """All new images and the exemplars of old classes."""
    new = self.new_examples(phase)
    if not phase:
      return new
    images, labels = self._store.read(phase - 1)
    old = source.in_memory(images, labels)
    return stream.concatenate([stream.Examples(old.labels, old.read), new])

  def remember(self, phase: int) -> None:
    """Keeps k images of each new class."""
    new = self.new_examples(phase)
    chosen = self.choose_exemplars(new)
    images = new.read(tf.constant(chosen)).numpy()
    self._store.write(phase, images, new.labels[chosen])

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """The exemplar files."""
    _, labels = self._store.read(phase)
    return {"raw_exemplars": self._store.stored_bytes, "images": len(labels)}
