"""DER++: exemplars with the logits that they once had."""

import functools

import tensorflow as tf

from ibdrr_tf.classifier_training import augmentation_of
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory
from ibdrr_tf.replay.second_stream import draw_beside

__all__ = ["DER_PP", "logit_distance"]

_DRAWS = 7  # folded into the seed; gfr.py has 3 to 6


def logit_distance(
  logits: tf.Tensor, kept: tf.Tensor, known: tf.Tensor
) -> tf.Tensor:
  """Mean squared difference of those logits that were kept.

  Args:
    logits: float32 [b, classes].
    kept: float32 [b, classes].
    known: bool [b, classes]; each image has at least one.
  """
  weights = tf.cast(known, tf.float32)
  squares = tf.reduce_sum(weights * tf.square(logits - kept), axis=1)
  return losses.batch_mean(squares / tf.reduce_sum(weights, axis=1))


def _extra_inputs(
  step: Step, batches: tf.data.Dataset, ids: tf.data.Dataset
) -> tf.data.Dataset:
  """Adds two draws from memory: one for logits, one for labels."""
  images, labels = step.memory.exemplars.read()
  return draw_beside(
    batches,
    ids,
    in_memory(images, labels),
    [labels, *step.memory.logits(step.task.classes)],
    draws=2,
    seed=stream.fold_in(step.config.seed, step.task.step, _DRAWS),
    augment=augmentation_of(step.config),
  )


def _objective(step: Step, classifier: classifiers.Classifier):
  """New images, logits of drawn ones, and labels of others."""
  if step.old is None:
    return None
  config = step.section

  def objective(images, labels, *drawn) -> tuple:
    first, _, kept, known, second, second_labels, _, _ = drawn
    # Three passes, each with its own batch statistics, as in mammoth.
    logits = classifier(images, training=True)
    first_logits = classifier(first, training=True)
    second_logits = classifier(second, training=True)
    replayed = losses.cross_entropy(second_labels, second_logits)
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits),
      "logits": config.alpha * logit_distance(first_logits, kept, known),
      "replayed": config.beta * replayed,
    }
    return parts, logits

  return objective, ("cross_entropy", "logits", "replayed")


# Buzzega et al. (2020), as in mammoth: cross-entropy on new images + alpha *
# mean squared distance to the kept logits + beta * cross-entropy, the latter
# two on images that are drawn from memory for every batch, as many as it has.
# Mammoth fills its memory by reservoir sampling during training and keeps the
# logits of that moment, over a head that has all classes from the start. Here
# nobody knows later classes: logits are those at the end of the step that
# brought the image, float16, and only classes known then are compared. Memory
# has equally many images of each class, chosen at random.
DER_PP = Method(
  memory=functools.partial(
    ExemplarMemory, selected="random", learned="new", keeps_logits=True
  ),
  start=from_last,
  objective=_objective,
  extra_inputs=_extra_inputs,
)
