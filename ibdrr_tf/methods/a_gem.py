"""A-GEM: no step may raise the average loss of old images."""

import functools

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.er import draw_replayed
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = ["A_GEM", "project"]


def project(gradient: tf.Tensor, reference: tf.Tensor) -> tf.Tensor:
  """The nearest gradient that does not point against a reference.

  g - (g . r / r . r) r if g . r < 0 (equation 11 of the paper), else g.

  Args:
    gradient: g, float32 [n].
    reference: r, float32 [n].
  """
  agreement = tf.reduce_sum(gradient * reference)
  share = tf.math.divide_no_nan(
    tf.minimum(agreement, 0.0), tf.reduce_sum(tf.square(reference))
  )
  return gradient - share * reference


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy of new images; that of old ones only limits the step."""
  if step.old is None:
    return None

  def objective(images, labels, old_images, old_labels) -> tuple:
    # Two passes, each with its own batch statistics, as in mammoth.
    logits = classifier(images, training=True)
    old_logits = classifier(old_images, training=True)
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits),
      "memory": losses.cross_entropy(old_labels, old_logits),
    }
    return parts, logits

  classifier.set_update(
    lambda gradients, apply: apply(
      project(gradients["cross_entropy"], gradients["memory"])
    )
  )
  return objective, ("cross_entropy", "memory")


# Chaudhry et al. (2019), averaged gradient episodic memory, as in mammoth. For
# every batch of new images, as many are drawn from memory. The gradient of
# their loss is the reference. Images of memory are not learned from otherwise.
# The authors know the task at test time; here, as in mammoth, there is one head
# over all classes. Memory has equally many random images of each class.
A_GEM = Method(
  memory=functools.partial(ExemplarMemory, selected="random", learned="new"),
  start=from_last,
  objective=_objective,
  extra_inputs=draw_replayed,
)
