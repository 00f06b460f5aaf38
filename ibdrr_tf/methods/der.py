"""DER, dynamically expandable: one more backbone for each step."""

import functools

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.method import Method, Step, nearest_mean
from ibdrr_tf.methods.wa import align
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = ["DER", "auxiliary_labels"]


def auxiliary_labels(labels: tf.Tensor, old: int) -> tf.Tensor:
  """New classes from 1 on; 0 is any old class.

  Args:
    labels: int [b].
    old: number of old classes, which come first.
  """
  return tf.maximum(labels - old + 1, 0)


def _start(step: Step, classifier: classifiers.Classifier) -> None:
  """Goes on from the last weights; the new backbone copies the last one."""
  if step.old is None:
    return
  old = step.old.classifier
  for number in range(classifier.backbones):
    source = old.backbone(min(number, old.backbones - 1))
    classifier.backbone(number).set_weights(source.get_weights())
  old_kernel, old_bias = old.get_layer("logits").get_weights()
  kernel, bias = classifier.get_layer("logits").get_weights()
  kernel[: len(old_kernel), : old.classes] = old_kernel
  bias[: old.classes] = old_bias
  classifier.get_layer("logits").set_weights([kernel, bias])


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy, and that of the new backbone alone."""
  if step.old is None or not step.task.new_labels:
    return None
  old = step.task.old_classes
  student = classifier.up_to("features", "logits")
  size = classifier.backbone(classifier.backbones - 1).output_shape[-1]
  with step.strategy.scope():
    head = tf.keras.layers.Dense(len(step.task.new_labels) + 1, dtype="float32")
    head.build([None, size])
  # As an attribute it learns with the classifier, and is in its checkpoints.
  classifier.auxiliary = head

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    features, logits = student(images, training=True)
    own = losses.cross_entropy(
      auxiliary_labels(labels, old), head(features[:, -size:])
    )
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits),
      "auxiliary": own,
    }
    return parts, logits

  return objective, ("cross_entropy", "auxiliary")


# Yan et al. (2021), as in PyCIL: each step that brings new classes adds a
# backbone, which starts as a copy of the last one; those before it are frozen.
# The head sees the features of all of them. An auxiliary head, which is thrown
# away after the step, tells the new classes from each other and from all old
# ones by the features of the new backbone alone. In the end the weights of new
# classes are aligned as by `wa`. Masks and pruning, which make the paper's
# networks smaller, are left out, as they are in PyCIL and in the authors' code.
# All backbones are kept and counted; PyCIL's ColorJitter is left out.
DER = Method(
  memory=functools.partial(ExemplarMemory, selected="herding"),
  start=_start,
  objective=_objective,
  also={"nearest mean of exemplars": nearest_mean},
  finish=align,
  needs_old_network=True,
  own_schedule=True,
  grows=True,
)
