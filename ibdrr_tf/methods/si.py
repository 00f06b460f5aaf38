"""SI: weights are held by what they have done for old classes."""

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_training import Network
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers.gradients import flat
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods.ewc import penalty
from ibdrr_tf.methods.lwf import new_class_loss
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.importance_memory import ImportanceMemory

__all__ = ["SI", "PathMemory", "Trace", "path_importance"]


def path_importance(
  path: np.ndarray, moved: np.ndarray, damping: float
) -> np.ndarray:
  """What a weight has done for the loss, relative to the square of its way.

  max(0, path) / (moved^2 + damping), equation 5 of the paper.

  Args:
    path: the sum over updates of -gradient * change, float32 [weights].
    moved: how far each weight has come in the step, float32 [weights].
    damping: xi.
  """
  return np.maximum(path, 0.0) / (moved**2 + damping)


class PathMemory(ImportanceMemory):
  """The sum of the importances of all steps."""

  def _joined(self, task: Task, network: Network) -> np.ndarray:
    trace = network.classifier.trace
    weights = flat(network.classifier.trainable_variables).numpy()
    new = path_importance(
      trace.path.numpy(), weights - trace.start.numpy(), self.config.si.damping
    )
    return self.importance(network.classifier) + new


class Trace(tf.Module):
  """Where a step began, and what its updates have done for the loss.

  As an attribute of the classifier, it is part of its checkpoints.

  Attributes:
    start: weights before the step, float32 [weights].
    path: see `path_importance`, float32 [weights].
  """

  def __init__(self, weights: tf.Tensor):
    super().__init__()
    # All replicas take the same step.
    options = {
      "trainable": False,
      "aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA,
    }
    self.start = tf.Variable(weights, name="start", **options)
    self.path = tf.Variable(tf.zeros_like(weights), name="path", **options)


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy of the new classes, and springs; paths are followed."""
  config, variables = step.section, classifier.trainable_variables
  old = step.old.classes if step.old else 0
  importance = tf.constant(step.memory.importance(classifier))
  with step.strategy.scope():
    trace = classifier.trace = Trace(flat(variables))

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    springs = penalty(flat(variables), trace.start, importance)
    parts = {
      "cross_entropy": new_class_loss(labels, logits, old),
      "penalty": config.penalty * springs,
    }
    return parts, logits

  def update(gradients, apply) -> None:
    before = flat(variables)
    apply(gradients["cross_entropy"] + gradients["penalty"])
    change = flat(variables) - before
    trace.path.assign_add(-gradients["cross_entropy"] * change)

  classifier.set_update(update)
  return objective, ("cross_entropy", "penalty")


# Zenke et al. (2017), synaptic intelligence, on new images alone: cross-entropy
# over the new logits, as for LwF and EWC, + c * sum_i Omega_i (w_i - w*_i)^2.
# Omega is the sum over steps of `path_importance`; w* are the weights of the
# last step. Negative paths, which momentum and weight decay make, count as 0:
# else the loss would have no minimum. c and xi are mammoth's for CIFAR; the
# schedule is that of EWC.
SI = Method(
  memory=PathMemory,
  start=from_last,
  objective=_objective,
  needs_old_network=True,
  own_schedule=True,
  has_budget=False,
)
