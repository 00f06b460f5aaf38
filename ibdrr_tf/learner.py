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
import json
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_folder import ClassifierFolder
from ibdrr_tf.classifier_training import Network
from ibdrr_tf.classifiers.classifier import Classifier
from ibdrr_tf.classifiers.shrink import without_class
from ibdrr_tf.codec_training import prepare_codec
from ibdrr_tf.data.arriving import (
  Arrived,
  fingerprint,
  hold_out,
  read_arrived,
)
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.lock import Lock
from ibdrr_tf.methods import Step, check_method, learn_step
from ibdrr_tf.replay.memory import Memory, Setting
from ibdrr_tf.replay.networks import eight_bit_size
from ibdrr_tf.state import (
  State,
  claim_traces,
  is_claimed,
  read_state,
  refuse_foreign,
  remove_traces,
  write_state,
)
from ibdrr_tf.state_config import check_fixed, config_of, to_stored
from ibdrr_tf.step_evaluation import accuracy_on_held_out, codec_quality
from ibdrr_tf.validation import check_codec, validate

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
    codec: name or folder of a codec; "" trains one in the first step.
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
    self.path = pathlib.Path(state)
    self._strategy = strategy or tf.distribute.get_strategy()
    self._team = Team(self._strategy)
    self._lock = Lock(self.path)
    self._state = read_state(self.path)
    if config is None:
      self.config = config_of(self._state)
    else:
      self.config = config.copy_and_resolve_references()
    for path, value in (
      ("method", method),
      ("codec", codec),
      ("memory.total_bytes", memory_bytes),
      ("data.image_size", image_size),
      ("seed", seed),
    ):
      if value is not None:
        self.config.update_from_flattened_dict({path: value})
    validate(self.config)
    self._method = check_method(self.config)
    if self._state:
      check_fixed(self.config, self._state.config)
      self._check_size()
    if self._method.uses_codec:
      check_codec(self.config, self.path)
    self._networks = ClassifierFolder(
      self.path / "classifier", self._method, self.config, self._strategy
    )
    self._codec = None
    self._memory: Memory | None = None
    self._network: Network | None = None

  @property
  def step(self) -> int:
    """Number of the last step; -1 before the first."""
    return self._state.step if self._state else -1

  @property
  def classes(self) -> tuple[str, ...]:
    """Names of all classes, in label order."""
    return self._state.classes if self._state else ()

  @property
  def history(self) -> tuple[dict[str, Any], ...]:
    """What each step did, the first one first."""
    return self._state.steps if self._state else ()

  @property
  def image_shape(self) -> tuple[int, int, int] | None:
    """(height, width, 3) of all images; None before the first step."""
    return tuple(self._state.image_shape) if self._state else None

  @property
  def memory(self) -> Memory:
    """What is remembered."""
    self._require_state()
    self._prepare(None)
    return self._memory

  @property
  def network(self) -> Network:
    """The network of the last step."""
    self._require_class()
    if self._network is None:
      self._network = self._networks.read(
        self.step, self._state.network, self.image_shape
      )
    return self._network

  def lock(self) -> contextlib.AbstractContextManager:
    """A context in which no other process changes the state."""
    return self._lock if self._team.is_chief else contextlib.nullcontext()

  def ledger(self) -> Ledger:
    """The bytes that are kept."""
    self._require_state()
    self._prepare(None)
    uses_network = self._method.uses_old_network and self._state.network
    network = self.network.classifier if uses_network else None
    return self._ledger(self.step, network)

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
    size = {"image_size": self.config.data.image_size}
    options = {
      **size,
      "ram_bytes": self.config.data.ram_bytes,
      "skip_broken": self.config.data.skip_broken,
    }
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
    with self._changing():
      print_ = fingerprint(names, new, held_out)
      if self.history and self.history[-1].get("fingerprint") == print_:
        if self._exceeds_budget():
          return self._learn_nothing(print_)
        self._settle()
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
      return self._learn(task, classes, print_)

  def retrain(self) -> dict[str, Any]:
    """Trains the network again on what is remembered, without new images.

    A call that was interrupted after its step had been committed is brought to
    its end when it is repeated.

    Returns:
      What the step did, as in `history`.
    """
    with self._changing():
      self._require_class()
      last = f"retrain {self.step}"
      if self.history[-1].get("fingerprint") == last and self._team.ask_chief(
        lambda: "yes" if is_claimed(self.path, self._claim(last)) else ""
      ):
        self._settle()
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
    return self._learn(task, self.classes, print_)

  def predict(self, images: np.ndarray) -> Predictions:
    """Names the classes of images.

    Args:
      images: uint8 [n, h, w, 3], or a list of images [h, w, 3], which may
        differ in size, or one such image.
    """
    self._require_class()
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
      before = self._state
      self._refresh()
      if self._state == before:
        raise
      return self._scores(examples)

  def _scores(self, examples: Examples) -> np.ndarray:
    memory = self.memory if self._method.predicts_from_memory else None
    return self._method.predict(self.network, memory, examples)

  def other_scores(self, examples: Examples) -> dict[str, np.ndarray]:
    """The same by the method's other classifiers, by name."""
    return {
      name: predict(self.network, self.memory, examples)
      for name, predict in self._method.also.items()
    }

  def evaluate(self, data: Any) -> dict[str, Any]:
    """Accuracy on labelled images, in percent, overall and by class.

    Args:
      data: see `read_arrived`; classes that are not known count as errors.
        Where there are validation images, only they are looked at.
    """
    self._require_class()
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
    with self._changing():
      if self._state and self._state.just_forgotten == name:
        self._settle()
        return
      if name not in self.classes:
        known = ", ".join(self.classes) or "none"
        raise UserError(f"there is no class {name!r}: the state knows {known}.")
      label, step, old = self.classes.index(name), self.step + 1, self._state
      self.memory.forget(step, label)
      network = smaller = None
      if len(old.classes) > 1:
        network = {
          **old.network,
          "classes": old.network["classes"] - 1,
          "old_classes": old.network["old_classes"]
          - (label < old.network["old_classes"]),
        }
        smaller = self._networks.build(network, self.image_shape)
        without_class(self.network.classifier, smaller, label)
        self._networks.write(step, smaller)
      state = dataclasses.replace(
        old,
        step=step,
        classes=tuple(c for c in old.classes if c != name),
        network=network,
        steps=(
          *old.steps,
          {
            "step": step,
            "kind": "forget",
            "class": name,
            "ledger": self._ledger(step, smaller).to_json(),
          },
        ),
      )
      self._commit(state, None)

  @contextlib.contextmanager
  def _changing(self) -> Iterator[None]:
    """Locks the state, and notices what other processes have done to it."""
    self._team.on_chief(lambda: refuse_foreign(self.path))
    with self.lock():
      self._refresh()
      try:
        yield
      except BaseException:
        # What is in RAM may be that of a step that never counted.
        self._memory = self._network = None
        raise

  def _learn(
    self, task: Task, classes: tuple[str, ...], print_: str
  ) -> dict[str, Any]:
    """Does a step and commits it."""
    # Weights and batches are stateless functions of the seed; with
    # deterministic ops a step that was interrupted ends with the same result.
    tf.config.experimental.enable_op_determinism()
    claim = self._claim(print_)
    self._team.on_chief(
      lambda: claim_traces(self.path, claim, is_new=self._state is None)
    )
    self._prepare(task)
    old = self.network if self._state and self._state.network else None
    step = Step(self.config, self._strategy, self.path, task, self._memory, old)
    before = self._memory.stored_bytes()
    network, seconds = learn_step(self._method, step)
    if len(task.new) or self._exceeds_budget():
      self._memory.add(task, network)
    else:
      self._memory.folder.write(task.step, self._memory.folder.parts)
    built = {"classes": task.classes, "old_classes": task.old_classes}
    if self._method.grows:
      built["backbones"] = network.classifier.backbones
    self._networks.write(task.step, network.classifier)
    if self.config.classifier.stored != "float32":
      # What is evaluated is the network that the next step will find.
      shape = tuple(task.new.image_shape)
      network = self._networks.read(task.step, built, shape)
    record = {
      "step": task.step,
      "kind": "learn",
      "fingerprint": print_,
      "new_classes": list(classes[task.old_classes :]),
      "images": len(task.new),
      "held_out": len(task.held_out) if task.held_out is not None else 0,
      "seconds": round(seconds, 2),
      "dropped": self._memory.dropped,
      "ledger": self._ledger(task.step, network.classifier).to_json(),
      **codec_quality(task, self._codec, self._memory, before),
    }
    accuracy = accuracy_on_held_out(self._method, network, self._memory, task)
    if accuracy["all"] is not None:
      record["accuracy"] = accuracy
    state = State(
      task.step,
      classes,
      tuple(task.new.image_shape),
      to_stored(self.config),
      built,
      (*self.history, record),
    )
    self._commit(state, network)
    return record

  def _claim(self, print_: str) -> str:
    """Tells a step in progress: its data and its configuration."""
    return json.dumps([print_, to_stored(self.config)])

  def _ledger(self, step: int, classifier: Classifier | None) -> Ledger:
    """The bytes that are kept after a step, committed or about to be.

    Args:
      step: its number.
      classifier: of that step; None if there is none.
    """
    stored = dict(self._memory.stored_bytes())
    if self._method.needs_old_network:
      size = self._networks.size(step)
      stored["old_network"] = size
      stored["other_models"] = stored.get("other_models", 0) + size
    if self._method.uses_old_network and classifier is not None:
      weights = classifier.up_to("logits").get_weights()
      stored["old_network_8bit"] = eight_bit_size(weights)
    return Ledger(**stored)

  def _exceeds_budget(self) -> bool:
    """Whether memory has more bytes than the configuration now allows."""
    self._prepare(None)
    limit = self.config.memory.total_bytes
    return 0 < limit < Ledger(**self._memory.stored_bytes()).total

  def _commit(self, state: State, network: Network | None) -> None:
    """Makes a state the one that counts, then clears up."""
    self._team.on_chief(lambda: write_state(self.path, state))
    self._state, self._network = state, network
    self._settle()

  def _settle(self) -> None:
    """Removes traces of other steps; writes what is made from the state."""
    self.memory.settle()
    if not self._state.network:
      self._networks.withdraw()
    elif not self._networks.is_published(self.step):
      self._networks.publish(self.step, self.network, self.classes)
    self._networks.keep_only(self.step)
    self._team.on_chief(
      lambda: remove_traces(
        self.path, pictures=self._state.just_forgotten is not None
      )
    )

  def _prepare(self, task: Task | None) -> None:
    """Opens codec and memory; the first step makes them."""
    if self._memory is not None:
      return
    shape = self.image_shape or tuple(task.new.image_shape)
    if self._method.uses_codec:
      examples = None if self._state else task.new
      self._codec = prepare_codec(
        self.config, examples, self.path, self._strategy
      )
    setting = Setting(
      self.config, self.path / "memory", shape, self._codec, self._team
    )
    self._memory = self._method.memory(setting, self.step)

  def _check_size(self) -> None:
    size = self.config.data.image_size
    if size not in (0, self.image_shape[0]):
      raise UserError(
        f"the state {self.path} has images of {self.image_shape[0]} pixels a "
        f"side, not of {size}: leave the size out, or start another state."
      )

  def _require_class(self) -> None:
    self._require_state()
    if not self.classes:
      raise UserError(f"the state {self.path} knows no class: learn some.")

  def _require_state(self) -> None:
    if self._state is None:
      raise UserError(f"there is no state in {self.path}: learn something.")

  def _refresh(self) -> None:
    """Notices what another process has learned since this one looked."""
    state = read_state(self.path)
    # All workers must take the same way, and each timed the last step itself.
    if self._team.ask_chief(lambda: "" if state == self._state else "changed"):
      self._state, self._memory, self._network = state, None, None


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
