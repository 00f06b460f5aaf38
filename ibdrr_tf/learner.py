"""Learns classes and images as they arrive, and remembers them in a folder.

    learner = Learner("state")
    learner.learn("monday/")      # a folder for each class
    learner.learn("friday/")      # monday/ may be gone
    learner.predict(images).names

One step sees the state that the step before has left, the new images, and the
seed. Nothing else: no later classes, no old raw images, no number of steps.
"""

import contextlib
import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_training import Network
from ibdrr_tf.data.arriving import (
  Arrived,
  fingerprint,
  hold_out,
  read_arrived,
)
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.open_state import OpenState
from ibdrr_tf.replay.memory import Memory
from ibdrr_tf.step import forget_class, learn_task

__all__ = ["Learner", "Predictions"]


@dataclasses.dataclass(frozen=True)
class Predictions:
  """What a learner makes of some images.

  Attributes:
    names: the most likely class of each image.
    probabilities: float32 [n, classes], in the order of `classes`.
    classes: names of all classes.
  """

  names: list[str]
  probabilities: np.ndarray
  classes: tuple[str, ...]


class Learner:
  """A classifier that learns over time, and what it remembers.

  Args:
    state: its folder; made by the first step.
    config: a configuration; by default `config.learner_config()`, or that of
      the state. Fields that say how to train may differ from the state's;
      those that say what the network and the codec are may not.
    method: name of a method; overrides the configuration, as do the others.
    codec: name or folder of a codec; "" trains one in the first step; "auto",
      the default, lets `memory_choice` choose the method too, if none is named.
    memory_bytes: byte budget of images and codec after every step.
    image_size: height and width of all images, set by the first step.
    seed: of weights and batches.
    strategy: of `tf.distribute`; models are made within its scope.
  """

  def __init__(
    self,
    state: str | pathlib.Path,
    *,
    config: ml_collections.ConfigDict | None = None,
    method: str | None = None,
    codec: str | None = None,
    memory_bytes: int | None = None,
    image_size: int | None = None,
    seed: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
  ):
    overrides = {
      "method": method,
      "codec": codec,
      "memory.total_bytes": memory_bytes,
      "data.image_size": image_size,
      "seed": seed,
    }
    strategy = strategy or tf.distribute.get_strategy()
    self._open = OpenState(pathlib.Path(state), config, overrides, strategy)

  @property
  def path(self) -> pathlib.Path:
    """The folder of the state."""
    return self._open.path

  @property
  def config(self) -> ml_collections.ConfigDict:
    """The configuration of the next step."""
    return self._open.config

  @property
  def choice(self) -> str | None:
    """Why a new learner has the memory that it has; None if it was told."""
    return self._open.choice

  @property
  def step(self) -> int:
    """Number of the last step; -1 before the first."""
    return self._open.step

  @property
  def classes(self) -> tuple[str, ...]:
    """Names of all classes, in label order."""
    return self._open.classes

  @property
  def history(self) -> tuple[dict[str, Any], ...]:
    """What each step did, the first one first."""
    return self._open.history

  @property
  def image_shape(self) -> tuple[int, int, int] | None:
    """(height, width, 3) of all images; None before the first step."""
    return self._open.image_shape

  @property
  def memory(self) -> Memory:
    """What is remembered."""
    return self._open.memory

  @property
  def network(self) -> Network:
    """The network of the last step."""
    return self._open.network

  def lock(self) -> contextlib.AbstractContextManager:
    """A context in which no other process changes the state."""
    return self._open.lock()

  def ledger(self) -> Ledger:
    """The bytes that are kept."""
    self._open.require_state()
    return self._open.ledger()

  def learn(self, data: Any, validation: Any = None) -> dict[str, Any]:
    """Learns new images: of new classes, of known ones, or of both.

    A call that was interrupted goes on when it is repeated. Data that the last
    step has learned already is not learned twice.

    Args:
      data: see `read_arrived`.
      validation: images of the same form that only test; without them, a tenth
        of the new images is set aside.

    Returns:
      What the step did, as in `history`.
    """
    names = ("image_size", "ram_bytes", "skip_broken")
    options = {name: self.config.data[name] for name in names}
    arrived = read_arrived(data, self.image_shape, **options)
    if validation is not None:
      shape = arrived.examples.image_shape
      tests = read_arrived(validation, shape, **options)
      held_out = _relabel(tests, arrived)
      arrived = dataclasses.replace(arrived, validation=held_out)
    new, held_out = arrived.examples, arrived.validation
    if held_out is None:
      new, held_out = hold_out(new, self.config.seed)
    return self.learn_examples(arrived.names, new, held_out)

  def learn_examples(
    self,
    names: Sequence[str],
    new: Examples,
    held_out: Examples | None = None,
  ) -> dict[str, Any]:
    """Learns images that are already of one size.

    Args:
      names: of the classes; new ones are added in this order.
      new: images to learn from; labels are numbers in `names`.
      held_out: images that only test; None without any.

    Returns:
      What the step did, as in `history`.
    """
    with self._open.changing():
      print_ = fingerprint(names, new, held_out)
      if self.history and self.history[-1].get("fingerprint") == print_:
        if self._open.exceeds_budget():
          return self._learn_nothing(print_)
        self._open.settle()
        return self.history[-1]
      classes = tuple(dict.fromkeys((*self.classes, *names)))
      number = {name: k for k, name in enumerate(classes)}
      places = np.array([number[name] for name in names], np.int32)

      def relabelled(examples: Examples | None) -> Examples | None:
        if examples is None:
          return None
        return dataclasses.replace(examples, labels=places[examples.labels])

      task = Task(
        step=self.step + 1,
        new=relabelled(new),
        held_out=relabelled(held_out),
        old_classes=len(self.classes),
        classes=len(classes),
      )
      return learn_task(self._open, task, classes, print_)

  def retrain(self) -> dict[str, Any]:
    """Trains the network again on what is remembered, without new images.

    A call that was interrupted after its step had been committed is brought to
    its end when it is repeated.

    Returns:
      What the step did, as in `history`.
    """
    with self._open.changing():
      self._open.require_class()
      last = f"retrain {self.step}"
      is_last = self.history[-1].get("fingerprint") == last
      if is_last and self._open.is_claimed(last):
        self._open.settle()
        return self.history[-1]
      if not self.ledger().images:
        raise UserError(
          f"the method {self.config.method} keeps no images to train on again: "
          f"learn new ones."
        )
      return self._learn_nothing(f"retrain {self.step + 1}")

  def _learn_nothing(self, print_: str) -> dict[str, Any]:
    """A step without new images."""
    shape = self.image_shape
    nothing = in_memory(np.zeros([0, *shape], np.uint8), np.zeros(0))
    count = len(self.classes)
    task = Task(self.step + 1, nothing, None, count, count)
    return learn_task(self._open, task, self.classes, print_)

  def predict(self, images: np.ndarray) -> Predictions:
    """Names the classes of images.

    Args:
      images: uint8 [n, h, w, 3], or a list of images [h, w, 3], which may
        differ in size, or one such image.
    """
    self._open.require_class()
    if not hasattr(images, "__len__"):
      raise UserError(
        f"{type(images).__name__} is not what can be classified: give uint8 "
        f"[n, height, width, 3], or a list of uint8 [height, width, 3]."
      )
    # A list is a list of images, whatever their sizes.
    if len(getattr(images, "shape", ())) == 3:
      images = np.asarray(images)[np.newaxis]
    examples = read_arrived(
      (images, [""] * len(images)), self.image_shape
    ).examples
    scores = self.scores(examples)
    names = [self.classes[k] for k in scores.argmax(axis=1)]
    return Predictions(names, scores, self.classes)

  def scores(self, examples: Examples) -> np.ndarray:
    """Probability of each class for each example: float32 [n, classes]."""
    try:
      return self._scores(examples)
    except UserError:
      # Another process may have committed a step, and removed the last one's
      # files, since this one has read the state.
      before = self._open.state
      self._open.refresh()
      if self._open.state == before:
        raise
      return self._scores(examples)

  def _scores(self, examples: Examples) -> np.ndarray:
    memory = self.memory if self._open.method.predicts_from_memory else None
    return self._open.method.predict(self.network, memory, examples)

  def other_scores(self, examples: Examples) -> dict[str, np.ndarray]:
    """The same by the method's other classifiers, by name."""
    return {
      name: predict(self.network, self.memory, examples)
      for name, predict in self._open.method.also.items()
    }

  def evaluate(self, data: Any) -> dict[str, Any]:
    """Accuracy on labelled images, in percent, overall and by class.

    Args:
      data: see `read_arrived`; classes that are not known count as errors.
        Where there are validation images, only they are looked at.
    """
    self._open.require_class()
    arrived = read_arrived(data, self.image_shape)
    examples = arrived.examples
    if arrived.validation is not None:
      examples = arrived.validation
    known = {name: k for k, name in enumerate(self.classes)}
    truth = np.array([known.get(name, -1) for name in arrived.names])
    labels = examples.labels
    right = self.scores(examples).argmax(axis=1) == truth[labels]
    return {
      "images": len(right),
      "accuracy": 100.0 * float(right.mean()),
      "by_class": {
        name: 100.0 * float(right[labels == k].mean())
        for k, name in enumerate(arrived.names)
        if np.any(labels == k)
      },
      "unknown_classes": [n for n in arrived.names if n not in known],
    }

  def forget(self, name: str) -> None:
    """Takes a class out of memory and of the network's head, in one step.

    A call that was interrupted after its step had been committed is brought to
    its end when it is repeated. Pictures of the codec's training go as well.
    """
    with self._open.changing():
      state = self._open.state
      if state and state.just_forgotten == name:
        self._open.settle()
        return
      if name not in self.classes:
        known = ", ".join(self.classes) or "none"
        raise UserError(f"there is no class {name!r}: the state knows {known}.")
      forget_class(self._open, name)


def _relabel(tests: Arrived, arrived: Arrived) -> Examples:
  """Validation images with the labels of the new images' classes."""
  for name in tests.names:
    if name not in arrived.names:
      raise UserError(
        f"the validation images have the class {name!r}, of which no new image "
        f"has come: remove it, or add images."
      )
  places = np.array([arrived.names.index(n) for n in tests.names], np.int32)
  examples = tests.examples
  return dataclasses.replace(examples, labels=places[examples.labels])
