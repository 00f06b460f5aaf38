"""Learning without Forgetting: old outputs as targets, and no exemplars."""

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.memory import NoMemory

__all__ = ["LWF", "new_class_loss"]


def new_class_loss(labels: tf.Tensor, logits: tf.Tensor, old: int) -> tf.Tensor:
  """Cross-entropy over the new logits; over all for images of old classes.

  Args:
    labels: int [b].
    logits: float32 [b, classes].
    old: number of old classes, which come first.
  """
  is_new = (tf.range(logits.shape[-1]) >= old)[tf.newaxis]
  hidden = tf.logical_and(labels[:, tf.newaxis] >= old, ~is_new)
  return losses.cross_entropy(labels, tf.where(hidden, -1e9, logits))


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy of the new classes and distillation of the old ones."""
  if step.old is None:
    return None
  config, teacher = step.section, step.old.classifier
  old = teacher.classes

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    kept = losses.distillation(
      teacher(images, training=False), logits[:, :old], config.temperature
    )
    parts = {
      "cross_entropy": new_class_loss(labels, logits, old),
      "distillation": config.distillation * kept,
    }
    return parts, logits

  return objective, ("cross_entropy", "distillation")


# Li and Hoiem (2016), in its class-incremental form with one head. On new
# images alone: cross-entropy over the *new* logits, plus `lwf.distillation`
# times the distillation of the old logits. The paper knows the task at test
# time and tunes the weight; this is the single-head form of PyCIL, with its
# weight of 3, temperature 2 and schedule. The row of the IB-DRR paper is LwF
# "as presented in Mnemonics": a cosine network that also learns from exemplars.
LWF = Method(
  memory=NoMemory,
  start=from_last,
  objective=_objective,
  needs_old_network=True,
  own_schedule=True,
  has_budget=False,
)
