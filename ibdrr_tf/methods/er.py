"""ER: half of each batch comes from a reservoir of old images."""

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

__all__ = ["ER", "draw_replayed", "er_objective"]

_DRAWS = 10  # folded into the seed; latent_replay.py has 9


def draw_replayed(
  step: Step, batches: tf.data.Dataset, ids: tf.data.Dataset
) -> tf.data.Dataset:
  """Adds as many images of memory as a batch has, with their labels."""
  images, labels = step.memory.replayed()
  return draw_beside(
    batches,
    ids,
    in_memory(images, labels),
    [labels],
    draws=1,
    seed=stream.fold_in(step.config.seed, step.task.step, _DRAWS),
    augment=augmentation_of(step.config),
  )


def er_objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy of new and of old images, in one pass."""
  if step.old is None:
    return None

  def objective(images, labels, old_images, old_labels) -> tuple:
    both = tf.concat([images, old_images], axis=0)
    logits = classifier(both, training=True)
    size = tf.shape(labels)[0]
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits[:size]) / 2,
      "replayed": losses.cross_entropy(old_labels, logits[size:]) / 2,
    }
    return parts, logits[:size]

  return objective, ("cross_entropy", "replayed")


# Chaudhry et al. (2019), "On tiny episodic memories", as in mammoth: every
# batch of new images is joined by as many from memory, and the loss is the mean
# cross-entropy of both. Memory is a reservoir: a uniform sample of all images
# seen. The authors see every image once, and update their reservoir after every
# batch; here a step has epochs, and the reservoir changes at its end. Other
# values of `memory.selection` than random choose exemplars within each class,
# by the rules of SER (Isele and Cosgun, 2018) or by herding.
ER = Method(
  memory=functools.partial(
    ExemplarMemory, random="distribution", learned="new"
  ),
  start=from_last,
  objective=er_objective,
  extra_inputs=draw_replayed,
)
