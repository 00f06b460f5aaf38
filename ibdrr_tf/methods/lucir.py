"""LUCIR: a cosine head, features that keep their direction, and a margin."""

import functools
import math
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import cosine, losses
from ibdrr_tf.data.examples import take
from ibdrr_tf.methods.method import Method, Step, nearest_mean
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = [
  "LUCIR",
  "adaptive_weight",
  "cosine_network",
  "imprinted",
  "less_forget_loss",
  "lucir_objective",
  "ranking_loss",
]


def less_forget_loss(features: tf.Tensor, old_features: tf.Tensor) -> tf.Tensor:
  """1 - cos(features, old features), the mean over a batch of [b, d] each."""
  unit = tf.math.l2_normalize(features, axis=1)
  old_unit = tf.math.l2_normalize(tf.stop_gradient(old_features), axis=1)
  return losses.batch_mean(1.0 - tf.reduce_sum(unit * old_unit, axis=1))


def ranking_loss(
  labels: tf.Tensor,
  cosines: tf.Tensor,
  old: int,
  hardest: int,
  margin: float,
) -> tf.Tensor:
  """Old classes keep a margin over the new classes that they look most like.

  max(0, margin - cos_true + cos_k), the mean over images of old classes and
  over the `hardest` new classes k with the largest cosines; 0 if the batch has
  no image of an old class. See `mean_of_chosen` for several replicas.

  Args:
    labels: int [b].
    cosines: float32 [b, classes], not scaled.
    old: number of old classes, which come first.
    hardest: how many new classes are looked at, at most all of them.
    margin: of the true class over them.
  """
  hardest = min(hardest, cosines.shape[-1] - old)
  if not hardest:
    return tf.zeros([])  # A step without new classes has no rivals.
  rivals = tf.math.top_k(cosines[:, old:], hardest).values
  true = tf.gather(cosines, labels, axis=1, batch_dims=1)
  violations = tf.nn.relu(margin - true[:, tf.newaxis] + rivals)
  return losses.mean_of_chosen(tf.reduce_mean(violations, axis=1), labels < old)


def adaptive_weight(base: float, old: int, new: int) -> float:
  """Lambda = base * sqrt(old classes / new classes); `new` may be 0."""
  return base * math.sqrt(old / max(new, 1))


def cosine_network(old_classes: int, first: bool) -> dict[str, Any]:
  """A cosine head, whose old weights are fixed, and no last ReLU."""
  return {
    "head": lambda features, classes: cosine.cosine_head(
      features, classes, old_classes
    ),
    "last_relu": False,
  }


def imprinted(step: Step, classifier: classifiers.Classifier) -> None:
  """Goes on from the last weights and imprints the new classes."""
  if step.old is None:
    return
  classifiers.copy_weights(step.old.classifier.embed, classifier.embed)
  new = step.task.new
  features = [
    step.old.features(take(new, np.flatnonzero(new.labels == label)))
    for label in step.task.new_labels
  ]
  cosine.grow_cosine_head(step.old.classifier, classifier, features)


def lucir_objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy, less-forget loss and margin ranking loss."""
  if step.old is None:
    return None
  config = step.config.lucir
  student = classifier.up_to("features", "cosines", "logits")
  old_embed, old = step.old.classifier.embed, step.old.classes
  weight = adaptive_weight(config.distillation, old, classifier.classes - old)

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    features, cosines, logits = student(images, training=True)
    kept = less_forget_loss(features, old_embed(images, training=False))
    ranked = ranking_loss(labels, cosines, old, config.hardest, config.margin)
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits),
      "less_forget": weight * kept,
      "ranking": config.ranking * ranked,
    }
    return parts, logits

  return objective, ("cross_entropy", "less_forget", "ranking")


# Hou et al. (2019). Features without a last ReLU and a cosine head with one
# learned scale. New class weights are imprinted. Loss: cross-entropy, plus
# lambda times the less-forget loss, plus the margin ranking loss on exemplars.
# As in the released code the weights of old classes do not learn, which the
# paper does not say, and the network's output names the class (LUCIR-CNN); the
# released codes print iCaRL's classifier as well, and so do reports here. In
# that classifier, what the released code calls a flip reverses the colour
# channels; here images are flipped left to right.
LUCIR = Method(
  memory=functools.partial(ExemplarMemory, selected="herding"),
  start=imprinted,
  objective=lucir_objective,
  also={"nearest mean of exemplars": nearest_mean},
  network=cosine_network,
  needs_old_network=True,
  own_schedule=True,
)
