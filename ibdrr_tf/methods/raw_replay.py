"""A few raw exemplars of each old class, replayed beside the new classes."""

import functools

import numpy as np
import tensorflow as tf

from ibdrr_tf.data import source, stream
from ibdrr_tf.methods.base import Method
from ibdrr_tf.replay import exemplars, selection

__all__ = ["RawReplay"]


class RawReplay(Method):
  """Experience replay with k raw images a class, random or herded.

  With `memory.total_bytes`, k is the largest number, the same for all classes
  of the run, whose files fit.

  It goes on from the last phase's weights: with so few images of old classes,
  a network trained from scratch would hardly know them.
  """

  initialize = Method._continue_from_last

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self._store = exemplars.ExemplarStore(
      self.workdir / "memory", self.scenario.boundaries
    )
    # A budget that is too small is refused before the base phase is learned.
    _ = self.exemplars_per_class

  def examples(self, phase: int) -> stream.Examples:
    """All new images and the exemplars of old classes."""
    new = self.new_examples(phase)
    if not phase:
      return new
    old = _examples(*self._store.read(phase - 1))
    return stream.concatenate([old, new])

  def remember(self, phase: int) -> None:
    """Keeps k images of each new class."""
    new = self.new_examples(phase)
    chosen = self.choose_exemplars(new)
    images = new.read(tf.constant(chosen)).numpy()
    labels = new.labels[chosen]
    images = self.refine(phase, images, labels)
    self.team.on_chief(lambda: self._store.write(phase, images, labels))

  def refine(
    self, phase: int, images: np.ndarray, labels: np.ndarray
  ) -> np.ndarray:
    """Changes exemplars, uint8 [n, h, w, 3], before they are kept."""
    return images

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """The exemplar files."""
    _, labels = self._store.read(phase)
    return {"raw_exemplars": self._store.stored_bytes, "images": len(labels)}

  def exemplar_means(self, phase: int) -> np.ndarray:
    """Where the exemplars of each class seen lie: float32 [classes, d].

    Each is the renormalised average of the means over exemplars and over their
    horizontal flips; [0, d] before the base phase.
    """
    if phase < 0:
      return np.zeros([0, self.classifier.embed.output_shape[-1]], np.float32)
    images, labels = self._store.read(phase)
    return selection.class_means(
      self.features(_examples(images, labels)),
      self.features(_examples(images[:, :, ::-1], labels)),
      labels,
    )

  def nearest_means(self, examples: stream.Examples) -> np.ndarray:
    """Which class' exemplars lie nearest to each example: int64 [n]."""
    phase = self.scenario.boundaries.index(self.classifier.classes)
    means = self.exemplar_means(phase)
    return np.argmax(self.features(examples) @ means.T, axis=1)

  @functools.cached_property
  def exemplars_per_class(self) -> int:
    """How many exemplars each class has, by number or by byte budget."""
    config = self.config.memory
    if not config.total_bytes:
      return config.exemplars_per_class
    # Enough images a class are looked at that not all of them fit.
    most = 8
    while True:
      most *= 2
      sizes = self.exemplar_sizes(most)
      longest = max(map(len, sizes))
      is_enough = exemplars.stored_size(sizes, longest) > config.total_bytes
      if is_enough or most >= longest + 1:
        return exemplars.most_that_fit(sizes, config.total_bytes)


def _examples(images: np.ndarray, labels: np.ndarray) -> stream.Examples:
  split = source.in_memory(images, labels)
  return stream.Examples(split.labels, split.read)
