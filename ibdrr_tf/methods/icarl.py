"""iCaRL: herded exemplars, distillation and the nearest mean of exemplars."""

import functools

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.method import (
  Method,
  Step,
  argmax,
  from_last,
  nearest_mean,
)
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = ["ICARL", "sigmoid_loss"]


def sigmoid_loss(
  labels: tf.Tensor, logits: tf.Tensor, old_logits: tf.Tensor | None
) -> tf.Tensor:
  """Each output is a yes-or-no question; old ones are asked of the old network.

  Mean over batch and outputs of the sigmoid cross-entropy. The targets of old
  classes are the old network's outputs, those of new classes 0 or 1.

  Args:
    labels: int [b].
    logits: float32 [b, classes].
    old_logits: float32 [b, old classes]; None if there are none.
  """
  targets = tf.one_hot(labels, logits.shape[-1])
  if old_logits is not None:
    old = tf.nn.sigmoid(tf.stop_gradient(old_logits))
    targets = tf.concat([old, targets[:, old.shape[-1] :]], axis=1)
  answers = tf.nn.sigmoid_cross_entropy_with_logits(targets, logits)
  return losses.batch_mean(tf.reduce_mean(answers, axis=1))


def _objective(step: Step, classifier: classifiers.Classifier):
  """The loss that the configuration names."""
  config = step.section
  teacher = step.old.classifier if step.old else None

  def sigmoid(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    old = teacher(images, training=False) if teacher else None
    return {"cross_entropy": sigmoid_loss(labels, logits, old)}, logits

  def softmax(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    old = teacher(images, training=False)
    kept = losses.distillation(
      old, logits[:, : old.shape[-1]], config.temperature
    )
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits),
      "distillation": config.distillation * kept,
    }
    return parts, logits

  if config.loss == "sigmoid":
    return sigmoid, ("cross_entropy",)
  return (softmax, ("cross_entropy", "distillation")) if teacher else None


# Rebuffi et al. (2017). Trained on new images and on k herded exemplars of each
# old class. Two losses: `icarl.loss = "sigmoid"` is that of the paper and of
# its Theano code; the default, "softmax", is PyCIL's: cross-entropy over all
# classes plus the distillation of the old logits at temperature 2, with its
# schedule, which suits 160 epochs and does not need a learning rate of 2. Paper
# and code also differ in how many exemplars a class has: the paper shares 2,000
# among the classes seen so far; here, as in the protocol of the IB-DRR paper,
# each class has the same number from the first step on. PyCIL's ColorJitter is
# left out. `cifar100_baselines.py:icarl_original` differs from the Theano code:
# it keeps the last ReLU, has 1x1 convolutions as shortcuts, and averages its
# loss over the outputs of classes seen so far only. The nearest mean of
# exemplars names the class; what the network's own output names is reported as
# well.
ICARL = Method(
  memory=functools.partial(ExemplarMemory, selected="herding"),
  start=from_last,
  objective=_objective,
  predict=nearest_mean,
  predicts_from_memory=True,
  also={"network output": argmax},
  needs_old_network=True,
  own_schedule=True,
)
