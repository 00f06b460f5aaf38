"""EWC: weights that old classes need are held by springs."""

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_training import Network
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers.gradients import flat
from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import Examples, ordered_batches, take
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods.lwf import new_class_loss
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.importance_memory import ImportanceMemory

__all__ = ["EWC", "FisherMemory", "fisher", "penalty"]

_FISHER = 12  # folded into the seed


def penalty(
  weights: tf.Tensor, anchor: tf.Tensor, importance: tf.Tensor
) -> tf.Tensor:
  """sum_i importance_i (weight_i - anchor_i)^2, all float32 [weights]."""
  return tf.reduce_sum(importance * tf.square(weights - anchor))


def fisher(
  network: tf.keras.Model, examples: Examples, seed: tf.Tensor
) -> np.ndarray:
  """The diagonal of the Fisher information of a network's weights.

  The mean over images of the squared gradient of log p(label | image), where
  the label is drawn from what the network itself says of the image. Each image
  passes alone: a square of a batch's mean gradient would be something else.

  Args:
    network: from images, uint8 or float [b, h, w, 3], to logits; not in a
      scope of several replicas.
    examples: at least one image.
    seed: int32 [2], of the labels.

  Returns:
    float32 [weights], in the order of the trainable variables.
  """
  variables = network.trainable_variables
  sizes = [int(np.prod(variable.shape)) for variable in variables]
  total = tf.Variable(tf.zeros([sum(sizes)]), trainable=False)

  @tf.function(reduce_retracing=True)
  def add(number: tf.Tensor, image: tf.Tensor) -> None:
    with tf.GradientTape() as tape:
      logits = network(image, training=False)
      key = tf.random.experimental.stateless_fold_in(seed, number)
      label = tf.random.stateless_categorical(logits, 1, key)[:, 0]
      loss = tf.nn.sparse_softmax_cross_entropy_with_logits(label, logits)
    total.assign_add(tf.square(flat(tape.gradient(loss, variables))))

  for number, image in enumerate(ordered_batches(examples, 1)):
    add(tf.constant(number), tf.cast(image, network.input.dtype))
  return total.numpy() / len(examples)


class FisherMemory(ImportanceMemory):
  """Fisher information, averaged over steps by their numbers of classes."""

  def _joined(self, task: Task, network: Network) -> np.ndarray:
    config, classifier = self.config.ewc, network.classifier
    seed = (self.config.seed, task.step, _FISHER)
    order = np.random.default_rng(seed).permutation(len(task.new))
    new = fisher(
      classifiers.plain(classifier),
      take(task.new, order[: config.images].astype(np.int64)),
      stream.fold_in(self.config.seed, task.step, _FISHER),
    )
    new = np.minimum(new, config.largest)
    # A step without new classes counts as one with one.
    share = task.old_classes / max(task.classes, task.old_classes + 1)
    old, known = self.importance(classifier), self.known(classifier)
    return np.where(known, share * old + (1.0 - share) * new, new)


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy of the new classes, and springs to the old weights."""
  if step.old is None:
    return None
  weight, old = step.section.penalty, step.old.classes
  # A step starts from the last weights; new logits have no springs.
  anchor = flat(classifier.trainable_variables)
  importance = tf.constant(step.memory.importance(classifier))

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    springs = penalty(flat(classifier.trainable_variables), anchor, importance)
    parts = {
      "cross_entropy": new_class_loss(labels, logits, old),
      "penalty": weight / 2 * springs,
    }
    return parts, logits

  return objective, ("cross_entropy", "penalty")


# Kirkpatrick et al. (2017), in the class-incremental form of PyCIL: on new
# images alone, cross-entropy over the new logits + lambda / 2 * sum_i F_i
# (w_i - w*_i)^2. F is one Fisher information for all old classes, an average
# weighted by numbers of classes, clipped to `ewc.largest`, or SGD at a rate of
# 0.1 would not converge; w* are the weights of the last step. The paper has a
# penalty for each task. PyCIL squares mean gradients of batches at true labels;
# here, as in the paper, gradients of single images at labels that the network
# itself draws, of at most `ewc.images` images a step.
EWC = Method(
  memory=FisherMemory,
  start=from_last,
  objective=_objective,
  needs_old_network=True,
  own_schedule=True,
  has_budget=False,
)
