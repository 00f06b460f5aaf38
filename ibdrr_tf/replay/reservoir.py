"""A reservoir: a uniform sample of all images seen, whatever their class.

Every image gets a random number when it comes. The images with the smallest
numbers stay. That is reservoir sampling (Vitter, 1985), but it needs neither
the order of the images nor how many there were, and a byte budget may shrink it
at any time.
"""

import numpy as np

from ibdrr_tf.data.task import Task
from ibdrr_tf.replay.exemplars import Exemplars
from ibdrr_tf.replay.image_store import EncodedImages
from ibdrr_tf.replay.memory import Embeds

__all__ = ["Reservoir"]

_NUMBER = "<u4"  # Four bytes with each image, counted as all others.
_RESERVOIR = 11  # Folded into the seed.


class Reservoir(Exemplars):
  """Exemplars that are a sample of the stream.

  Without a byte budget there are `memory.exemplars_per_class` images for each
  class known so far, as in other memories, so the reservoir grows when classes
  come. Images that were given up before do not return: newer ones take the
  room. With a byte budget, as many images stay as fit, and each image ever seen
  is as likely to be among them as any other. A class may lose all its images.
  """

  def choose(
    self, task: Task, network: Embeds, most: int | None = None
  ) -> np.ndarray:
    """New images whose numbers are among the smallest: int64 [m]."""
    new = self._numbers(task)
    if most is None:
      most = self.most(task.classes)
    old = self._kept_numbers(self.store.read())
    smallest = np.argsort(np.concatenate([old, new]), kind="stable")[:most]
    return self._as_chief(np.sort(smallest[smallest >= len(old)]) - len(old))

  def most(self, classes: int) -> int | None:
    """Images in all; None is as many as fit into the byte budget."""
    if self._fills:
      return None
    return classes * self._memory.config.memory.exemplars_per_class

  def least(self, images: EncodedImages) -> EncodedImages:
    """As many images as there are classes."""
    return self.first(images, len(np.unique(images.labels)))

  def first(self, images: EncodedImages, count: int) -> EncodedImages:
    """So many images in all; of each class, a tenth of its share tests."""
    learned = np.flatnonzero(~images.held_out)
    order = np.argsort(self._kept_numbers(images), kind="stable")
    stays = np.zeros(len(images), bool)
    stays[learned[order[:count]]] = True
    classes = max(1, len(np.unique(images.labels)))
    tests = -(-count // (10 * classes))
    for label in np.unique(images.labels):
      members = np.flatnonzero((images.labels == label) & images.held_out)
      stays[members[:tests]] = True
    return images.take(stays)

  def _largest(self, images: EncodedImages) -> int:
    """A count for which nothing is given up, tests included."""
    tests = np.bincount(images.labels[images.held_out], minlength=1).max()
    return max(len(images), 10 * len(np.unique(images.labels)) * int(tests))

  def _side(self, task: Task, chosen: np.ndarray) -> list[bytes]:
    """The random number of each new exemplar."""
    return [n.tobytes() for n in self._numbers(task)[chosen].astype(_NUMBER)]

  def _numbers(self, task: Task) -> np.ndarray:
    """A random number for each new image, uint32 [n]."""
    seed = (self._memory.config.seed, task.step, _RESERVOIR)
    generator = np.random.default_rng(seed)
    return generator.integers(0, 1 << 32, len(task.new), np.uint32)

  def _kept_numbers(self, images: EncodedImages) -> np.ndarray:
    """Numbers of the images to learn from, uint32 [n]."""
    side = images.take(~images.held_out).side
    return np.frombuffer(b"".join(side), _NUMBER).astype(np.uint32)
