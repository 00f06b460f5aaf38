"""Learning without Forgetting: old outputs as targets, and no exemplars."""

from collections.abc import Sequence

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.distilling import Distilling
from ibdrr_tf.methods.finetune import Finetune

__all__ = ["LwF"]


class LwF(Distilling, Finetune):
  """Li and Hoiem (2016), in its class-incremental form with one head.

  On images of the new classes alone: cross-entropy over the *new* logits, plus
  `lwf.distillation` times the distillation of the old logits. The paper knows
  the task at test time and tunes the weight; this is the single-head form of
  PyCIL, with its weight of 3, temperature 2 and schedule. The name of a class
  is the largest of all logits.
  """

  def objective(
    self, phase: int, classifier: classifiers.Classifier
  ) -> tuple[classifiers.Objective, Sequence[str]] | None:
    """Cross-entropy of the new classes and distillation of the old ones."""
    if not phase:
      return None
    config, teacher = self.section, self.teacher(phase)
    old = teacher.classes

    def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
      logits = classifier(images, training=True)
      kept = losses.distillation(
        teacher(images, training=False), logits[:, :old], config.temperature
      )
      parts = {
        "cross_entropy": losses.cross_entropy(labels - old, logits[:, old:]),
        "distillation": config.distillation * kept,
      }
      return parts, logits

    return objective, ("cross_entropy", "distillation")
