"""How much each weight of the network matters to old classes."""

import abc
from typing import Any

import numpy as np

from ibdrr_tf.classifiers.classifier import Classifier
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.data.task import Task
from ibdrr_tf.replay.memory import Memory
from ibdrr_tf.replay.networks import read_arrays, write_arrays

__all__ = ["ImportanceMemory", "grown", "without_class"]

_NOTHING = {"files": {}, "classes": 0, "features": 0}


def grown(
  values: np.ndarray, features: int, old: int, classes: int
) -> np.ndarray:
  """Makes room for more classes: zeros for the weights of their logits.

  Args:
    values: float32 [weights], in the order of the trainable variables; last are
      the kernel [features, old] and the bias [old] of a linear head.
    features: inputs of the head.
    old: number of classes in `values`.
    classes: number of classes in the result.
  """
  body, kernel, bias = _divide(values, features, old)
  more = classes - old
  return np.concatenate(
    [
      body,
      np.pad(kernel, [(0, 0), (0, more)]).ravel(),
      np.pad(bias, [(0, more)]),
    ]
  )


def without_class(
  values: np.ndarray, features: int, classes: int, label: int
) -> np.ndarray:
  """Takes out the weights of a class; arguments as those of `grown`."""
  body, kernel, bias = _divide(values, features, classes)
  kernel = np.delete(kernel, label, axis=1)
  return np.concatenate([body, kernel.ravel(), np.delete(bias, label)])


def _divide(values: np.ndarray, features: int, classes: int) -> tuple:
  """All but the head, kernel [features, classes] and bias [classes]."""
  size = (features + 1) * classes
  body, head = values[: len(values) - size], values[len(values) - size :]
  kernel, bias = head[: features * classes], head[features * classes :]
  return body, kernel.reshape(features, classes), bias


class ImportanceMemory(Memory):
  """One number for each trainable weight of a network with a linear head."""

  def examples(self, task: Task) -> Examples:
    """The new images."""
    return task.new

  def importance(self, classifier: Classifier) -> np.ndarray:
    """Importance of the weights of a classifier that may know more classes.

    Returns:
      float32 [weights], in the order of its trainable variables.
    """
    part = self.folder.part("importance", _NOTHING)
    if not part["files"]:
      sizes = [np.prod(v.shape) for v in classifier.trainable_variables]
      return np.zeros(int(sum(sizes)), np.float32)
    return grown(
      self._read(part), part["features"], part["classes"], classifier.classes
    )

  def known(self, classifier: Classifier) -> np.ndarray:
    """Whether weights were there in the last step: bool [weights]."""
    part = self.folder.part("importance", _NOTHING)
    if not part["files"]:
      return self.importance(classifier) > 0
    ones = np.ones(len(self._read(part)), bool)
    return grown(ones, part["features"], part["classes"], classifier.classes)

  def add(self, task: Task, network: Any) -> None:
    """Measures what the step has learned, and joins it with what was known."""
    head = network.classifier.trainable_variables[-2]
    joined = self._joined(task, network)
    self._write(task.step, joined, int(head.shape[0]), task.classes)

  @abc.abstractmethod
  def _joined(self, task: Task, network: Any) -> np.ndarray:
    """Importance after a step, float32 [weights]."""

  def forget(self, step: int, label: int) -> None:
    """Takes the weights of the class out."""
    part = self.folder.part("importance", _NOTHING)
    features, classes = part["features"], part["classes"]
    if classes == 1:
      self.folder.write(step, {})
      return
    values = without_class(self._read(part), features, classes, label)
    self._write(step, values, features, classes - 1)

  def stored_bytes(self) -> dict[str, int]:
    """The importance of all weights; no images."""
    part = self.folder.part("importance", _NOTHING)
    size = sum(part["files"].values())
    return {**super().stored_bytes(), "other_models": size}

  def _read(self, part: dict[str, Any]) -> np.ndarray:
    (name,) = part["files"]
    return read_arrays(self.folder.path / name, "importance")

  def _write(
    self, step: int, values: np.ndarray, features: int, classes: int
  ) -> None:
    path = self.folder.new_file("importance", step, "npz")
    self.folder.team.on_chief(
      lambda: write_arrays(path, importance=values.astype(np.float32))
    )
    part = {
      "files": {path.name: path.stat().st_size},
      "features": features,
      "classes": classes,
    }
    self.folder.write(step, {"importance": part})
