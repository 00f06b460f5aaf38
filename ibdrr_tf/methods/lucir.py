"""LUCIR: a cosine head, features that keep their direction, and a margin."""

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import cosine, losses
from ibdrr_tf.data import stream
from ibdrr_tf.methods.distilling import Distilling
from ibdrr_tf.methods.raw_replay import RawReplay

__all__ = ["LUCIR", "adaptive_weight", "less_forget_loss", "ranking_loss"]


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
  rivals = tf.math.top_k(cosines[:, old:], hardest).values
  true = tf.gather(cosines, labels, axis=1, batch_dims=1)
  violations = tf.nn.relu(margin - true[:, tf.newaxis] + rivals)
  return losses.mean_of_chosen(tf.reduce_mean(violations, axis=1), labels < old)


def adaptive_weight(base: float, old: int, new: int) -> float:
  """Lambda = base * sqrt(old classes / new classes)."""
  return base * math.sqrt(old / new)


class LUCIR(Distilling, RawReplay):
  """Hou et al. (2019).

  Features without a last ReLU and a cosine head with one learned scale. New
  class weights are imprinted. Loss: cross-entropy, plus lambda times the
  less-forget loss, plus the margin ranking loss on exemplars. As in the
  released code the weights of old classes do not learn, which the paper does
  not say, and the network's output names the class (LUCIR-CNN).
  """

  selection = "herding"

  def build(self, phase: int, **options: Any) -> classifiers.Classifier:
    """A classifier with a cosine head, whose old weights are fixed."""
    old = self.scenario.classes_seen(phase - 1) if phase else 0
    return super().build(
      phase,
      head=lambda features, classes: cosine.cosine_head(features, classes, old),
      last_relu=False,
      **options,
    )

  def initialize(self, classifier: classifiers.Classifier) -> None:
    """Goes on from the last weights and imprints the new classes."""
    if self.classifier is not None:
      phase = self.scenario.boundaries.index(classifier.classes)
      classifiers.copy_weights(self.classifier.embed, classifier.embed)
      cosine.grow_cosine_head(
        self.classifier, classifier, self.new_features(phase)
      )

  def objective(
    self, phase: int, classifier: classifiers.Classifier
  ) -> tuple[classifiers.Objective, Sequence[str]] | None:
    """Cross-entropy, less-forget loss and margin ranking loss."""
    if not phase:
      return None
    config = self.section
    student = classifier.up_to("features", "cosines", "logits")
    teacher = self.teacher(phase)
    old_embed, old = teacher.embed, teacher.classes
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

  def other_predictions(self, examples: stream.Examples) -> dict:
    """What iCaRL's classifier would name; the released codes print both."""
    return {"nearest mean of exemplars": self.nearest_means(examples)}
