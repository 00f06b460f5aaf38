"""GEM: no step may raise the loss of any earlier step's images."""

from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods.er import draw_replayed
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory
from ibdrr_tf.replay.memory import Embeds, Setting

__all__ = ["GEM", "GroupedMemory", "project"]

# Of the quadratic programme: sweeps over its unknowns, and what is added to the
# diagonal, as a share of its mean, so that there is one solution.
_SWEEPS = 60
_RIDGE = 1e-4

_NO_GROUPS = {"files": {}, "sizes": []}


def project(
  gradient: tf.Tensor, references: tf.Tensor, margin: float
) -> tf.Tensor:
  """The nearest gradient that agrees with every reference.

  If g . r < 0 for any reference r, the rows of R, it is g + R' v, where v
  minimises |g + R' v|^2 under v >= margin (equation 11 of the paper); else g
  itself. With a margin of 0 the result has no negative product with any row of
  R. A larger one also favours old images. The unknowns are few, as many as
  there are references, so they are found one by one, in sweeps.

  Args:
    gradient: g, float32 [n].
    references: R, float32 [k, n].
    margin: the least value of each unknown.
  """
  agreement = tf.linalg.matvec(references, gradient)

  def solve() -> tf.Tensor:
    gram = tf.matmul(references, references, transpose_b=True)
    gram = tf.cast(gram, tf.float64)
    size = tf.shape(gram)[0]
    ridge = _RIDGE * tf.linalg.trace(gram) / tf.cast(size, tf.float64) + 1e-30
    gram += ridge * tf.eye(size, dtype=gram.dtype)
    linear = tf.cast(agreement, gram.dtype)

    def sweep(number: tf.Tensor, values: tf.Tensor) -> tuple:
      k = number % size
      slope = tf.reduce_sum(gram[k] * values) + linear[k]
      best = tf.maximum(values[k] - slope / gram[k, k], margin)
      return number + 1, tf.tensor_scatter_nd_update(values, [[k]], [best])

    start = tf.fill([size], tf.constant(margin, gram.dtype))
    _, values = tf.while_loop(
      lambda number, _: number < _SWEEPS * size, sweep, (0, start)
    )
    found = tf.cast(values, gradient.dtype)
    return gradient + tf.linalg.matvec(references, found, transpose_a=True)

  return tf.cond(tf.reduce_any(agreement < 0), solve, lambda: gradient)


class GroupedMemory(ExemplarMemory):
  """Random exemplars that know which step has introduced their class.

  The manifest has, for each step with new classes, how many it introduced.
  """

  _PART = "groups"

  def __init__(self, setting: Setting, step: int | None = -1):
    super().__init__(setting, step, selected="random", learned="new")
    self._sizes = list(self.folder.part(self._PART, _NO_GROUPS)["sizes"])

  def groups(self) -> np.ndarray:
    """Of each class, the number of its group: int32 [classes]."""
    sizes = self._sizes
    return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)

  def add(self, task: Task, network: Embeds) -> None:
    """Keeps exemplars of the new images too; new classes are a new group."""
    self._sizes = list(self.folder.part(self._PART, _NO_GROUPS)["sizes"])
    if task.new_labels:
      self._sizes.append(len(task.new_labels))
    super().add(task, network)

  def forget(self, step: int, label: int) -> None:
    """Keeps the exemplars of the other classes."""
    self._sizes[self.groups()[label]] -= 1
    self._sizes = [size for size in self._sizes if size]
    super().forget(step, label)

  def _parts(self) -> dict[str, dict[str, Any]]:
    return {self._PART: {"files": {}, "sizes": self._sizes}}


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy of new images; those of each group only limit the step."""
  if step.old is None:
    return None
  group_of = tf.constant(step.memory.groups())
  names = [f"group_{k}" for k in np.unique(step.memory.groups())]

  def objective(images, labels, old_images, old_labels) -> tuple:
    logits = classifier(images, training=True)
    old_logits = classifier(old_images, training=True)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(
      old_labels, old_logits
    )
    groups = tf.gather(group_of, old_labels)
    parts = {"cross_entropy": losses.cross_entropy(labels, logits)}
    for k, name in enumerate(names):
      parts[name] = losses.mean_of_chosen(each, groups == k)
    return parts, logits

  def update(gradients, apply) -> None:
    references = tf.stack([gradients[name] for name in names])
    new = gradients["cross_entropy"]
    apply(project(new, references, step.section.margin))

  classifier.set_update(update)
  return objective, ("cross_entropy", *names)


# Lopez-Paz and Ranzato (2017), gradient episodic memory, as in mammoth. Each
# earlier step that brought classes has a reference: the gradient of the loss of
# its exemplars. The authors take all exemplars of a step for it, after every
# batch; here as many are drawn as a batch has images, over all steps, and pass
# the network together. An earlier step of which none is drawn sets no limit.
# The authors know the task at test time; here there is one head.
GEM = Method(
  memory=GroupedMemory,
  start=from_last,
  objective=_objective,
  extra_inputs=draw_replayed,
)
