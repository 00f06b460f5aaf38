"""WA: distillation, then new class weights as long as the old ones."""

import functools

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_training import Network
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.method import Method, Step, from_last, nearest_mean
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = ["WA", "align", "aligned"]


def aligned(kernel: np.ndarray, old: int) -> np.ndarray:
  """Scales new classes' weights to the mean norm of the old ones.

  Args:
    kernel: float32 [d, classes].
    old: number of old classes, which come first.
  """
  norms = np.linalg.norm(kernel, axis=0)
  if not 0 < old < len(norms):
    return kernel
  factor = norms[:old].mean() / max(norms[old:].mean(), 1e-12)
  return np.concatenate([kernel[:, :old], factor * kernel[:, old:]], axis=1)


def align(step: Step, network: Network) -> float:
  """Aligns the weights of the head, which takes no time."""
  head = network.classifier.get_layer("logits")
  kernel, bias = head.get_weights()
  head.set_weights([aligned(kernel, step.task.old_classes), bias])
  return 0.0


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy and distillation, weighed by the number of classes."""
  if step.old is None:
    return None
  config, teacher = step.section, step.old.classifier
  old = teacher.classes
  share = old / (old + max(classifier.classes - old, 1))

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    kept = losses.distillation(
      teacher(images, training=False), logits[:, :old], config.temperature
    )
    parts = {
      "cross_entropy": (1.0 - share) * losses.cross_entropy(labels, logits),
      "distillation": share * kept,
    }
    return parts, logits

  return objective, ("cross_entropy", "distillation")


# Zhao et al. (2020), "Maintaining discrimination and fairness", as in PyCIL:
# (1 - s) cross-entropy + s distillation at temperature 2, s = old classes / all
# classes, on new images and herded exemplars; after each step but the first,
# the weights of new classes are scaled. A step without new classes counts as
# one with one, or it would learn from its teacher alone. PyCIL's ColorJitter is
# left out, and so is the paper's clipping of weights to positive values, which
# PyCIL does not have either.
WA = Method(
  memory=functools.partial(ExemplarMemory, selected="herding"),
  start=from_last,
  objective=_objective,
  also={"nearest mean of exemplars": nearest_mean},
  finish=align,
  needs_old_network=True,
  own_schedule=True,
)
