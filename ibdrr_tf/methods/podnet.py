"""PODNet: pooled outputs of all stages stay where they were."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_training import Network, train_further
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import cosine, losses, resnet
from ibdrr_tf.classifiers import optimizer as optimizers
from ibdrr_tf.data.examples import concatenate, in_memory, take
from ibdrr_tf.methods.lucir import less_forget_loss
from ibdrr_tf.methods.method import Method, Step, nearest_mean
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = ["PODNET", "first_of_each", "nca_loss", "pooled_distance"]

_PROXIES = 10  # of each class


def pooled_distance(
  stages: Sequence[tf.Tensor], old_stages: Sequence[tf.Tensor]
) -> tf.Tensor:
  """How far outputs have moved, pooled over width and over height.

  The squares of a stage's output are summed over its width and, apart, over
  its height; both sums together make one vector of unit length. Its distance to
  that of the old network is averaged over batch and stages.

  Args:
    stages: float [b, h, w, c] each.
    old_stages: of the old network.
  """

  def pooled(outputs: tf.Tensor) -> tf.Tensor:
    squares = tf.square(tf.cast(outputs, tf.float32))
    size = tf.shape(squares)[0]
    sums = [
      tf.reshape(tf.reduce_sum(squares, axis=axis), [size, -1])
      for axis in (2, 1)
    ]
    return tf.math.l2_normalize(tf.concat(sums, axis=1), axis=1)

  distances = []
  for new, old in zip(stages, old_stages, strict=True):
    difference = pooled(new) - tf.stop_gradient(pooled(old))
    squares = tf.reduce_sum(tf.square(difference), axis=1)
    # A step begins with equal outputs, where the root has no slope.
    distances.append(losses.batch_mean(tf.sqrt(tf.maximum(squares, 1e-12))))
  return tf.add_n(distances) / len(distances) if distances else tf.zeros([])


def nca_loss(labels: tf.Tensor, logits: tf.Tensor, margin: float) -> tf.Tensor:
  """Neighbourhood components: the true class against all others.

  With s = logits - margin * one_hot and m = max s, the mean of
  -(s_true - m) + log(1 + sum over other classes of exp(s - m)). The released
  code removes the true class from the sum by setting its s - m to 0: hence 1.

  Args:
    labels: int [b].
    logits: float32 [b, classes].
    margin: by which the true class must lead.
  """
  true = tf.one_hot(labels, logits.shape[-1])
  scores = logits - margin * true
  scores -= tf.reduce_max(scores, axis=1, keepdims=True)
  others = tf.reduce_logsumexp(scores * (1.0 - true), axis=1)
  return losses.batch_mean(others - tf.reduce_sum(scores * true, axis=1))


def first_of_each(labels: np.ndarray, count: int) -> np.ndarray:
  """Indices of the first `count` examples of each class: int64 [m]."""
  places = [np.flatnonzero(labels == k)[:count] for k in np.unique(labels)]
  return np.concatenate([np.zeros(0, np.int64), *places])


def _network(old_classes: int, first: bool) -> dict[str, Any]:
  """Ten proxies a class, those of old classes fixed, and no last ReLU."""
  return {
    "head": lambda features, classes: cosine.cosine_head(
      features, classes, old_classes, _PROXIES
    ),
    "last_relu": False,
  }


def _start(step: Step, classifier: classifiers.Classifier) -> None:
  """Goes on from the last weights; proxies of new classes are random."""
  if step.old is not None:
    classifiers.copy_weights(step.old.classifier.embed, classifier.embed)
    cosine.grow_cosine_head(step.old.classifier, classifier, [])


def _objective(step: Step, classifier: classifiers.Classifier):
  """NCA, and the distances of pooled outputs and of features."""
  config, old = step.section, step.old
  known = resnet.FEATURES[step.config.classifier.backbone]
  names = [name for name in known if name != "features"]

  def first(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    return {"nca": nca_loss(labels, logits, config.margin)}, logits

  if old is None:
    return first, ("nca",)
  new = max(classifier.classes - old.classes, 1)
  factor = math.sqrt(classifier.classes / new)
  student = classifier.up_to(*names, "features", "logits")
  teacher = old.classifier.up_to(*names, "features", "logits")

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    *stages, features, logits = student(images, training=True)
    *old_stages, old_features, _ = teacher(images, training=False)
    spatial = pooled_distance(stages, old_stages)
    flat = less_forget_loss(features, old_features)
    parts = {
      "nca": nca_loss(labels, logits, config.margin),
      "pod_spatial": config.spatial * factor * spatial,
      "pod_flat": config.flat * factor * flat,
    }
    return parts, logits

  return objective, ("nca", "pod_spatial", "pod_flat")


def _tune(step: Step, network: Network) -> float:
  """Trains a little more on equally many images of each class."""
  if step.old is None or not len(step.task.new):
    return 0.0
  exemplars, new = step.memory.exemplars, step.task.new
  images, labels = exemplars.read()
  most = int(np.bincount(labels).max())
  chosen = exemplars.choose(step.task, network)
  chosen = chosen[first_of_each(new.labels[chosen], most)]
  return train_further(
    network,
    concatenate([in_memory(images, labels), take(new, chosen)]),
    config=step.config,
    schedule=step.section.tuning,
    folder=step.folder,
    optimizer=_cosine_sgd,
    step=step.task.step,
    title=f"step {step.task.step}, balanced",
  )


def _cosine_sgd(config, schedule, steps: int, factor: float):
  """SGD along a cosine; arguments as those of `classifier_training.sgd`."""
  return optimizers.cosine_sgd(
    steps=steps * schedule.epochs,
    learning_rate=schedule.learning_rate * factor,
    momentum=config.classifier.momentum,
    l2=schedule.weight_decay,
  )


# Douillard et al. (2020), as in PyCIL: LUCIR's cosine head with ten proxies a
# class, whose cosines are averaged by their own softmax; the NCA loss; spatial
# and flat distillation, both times sqrt(classes / new classes); then 20 epochs
# on equally many images of each class. The authors' code differs from PyCIL's:
# it weighs the spatial part by 3 instead of 5 (`podnet.spatial`), imprints new
# proxies by k-means, tunes the head alone, and has ColorJitter. As in both,
# proxies of old classes do not learn.
PODNET = Method(
  memory=functools.partial(ExemplarMemory, selected="herding"),
  start=_start,
  objective=_objective,
  also={"nearest mean of exemplars": nearest_mean},
  network=_network,
  optimizer=_cosine_sgd,
  finish=_tune,
  needs_old_network=True,
  own_schedule=True,
)
