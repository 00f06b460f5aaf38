"""A state folder and what it holds: codec, memory and network, when asked for.

`Learner` asks; `step` changes. Whatever changes the folder does so within
`changing`, and counts from `commit` on.
"""

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import ml_collections
import tensorflow as tf

from ibdrr_tf import memory_choice
from ibdrr_tf.classifier_folder import ClassifierFolder
from ibdrr_tf.classifier_training import Network
from ibdrr_tf.classifiers.classifier import Classifier
from ibdrr_tf.codec_training import prepare_codec
from ibdrr_tf.data.task import Task
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.lock import Lock
from ibdrr_tf.methods import check_method
from ibdrr_tf.replay.codec import ReplayCodec
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
from ibdrr_tf.validation import check_codec, validate

__all__ = ["OpenState"]


class OpenState:
  """A learner's folder, opened with a configuration.

  Args:
    path: the folder; need not exist yet.
    config: a configuration; None takes the state's, or that of a new one.
    overrides: values of some fields, by their path; None leaves a field.
    strategy: models are made within its scope.

  Attributes:
    path: the folder.
    config: the configuration, validated.
    method: the one that the configuration names.
    strategy: of `tf.distribute`.
    team: the workers that train together.
    networks: the classifiers on the disk.
    state: what the last committed step has left; None before the first.
    choice: why a new learner has the memory that it has; None if it was told.
  """

  def __init__(
    self,
    path: pathlib.Path,
    config: ml_collections.ConfigDict | None,
    overrides: dict[str, Any],
    strategy: tf.distribute.Strategy,
  ):
    self.path = path
    self.strategy = strategy
    self.team = Team(strategy)
    self.state = read_state(path)
    self.config = (
      config_of(self.state)
      if config is None
      else config.copy_and_resolve_references()
    )
    given = {k: v for k, v in overrides.items() if v is not None}
    self.config.update_from_flattened_dict(given)
    self.choice = self._choose()
    validate(self.config)
    self.method = check_method(self.config)
    if self.state:
      check_fixed(self.config, self.state.config)
      self._check_size()
    if self.method.uses_codec:
      check_codec(self.config, path)
    self.networks = ClassifierFolder(
      path / "classifier", self.method, self.config, strategy
    )
    self._lock = Lock(path)
    self._codec: ReplayCodec | None = None
    self._memory: Memory | None = None
    self._network: Network | None = None

  @property
  def step(self) -> int:
    """Number of the last step; -1 before the first."""
    return self.state.step if self.state else -1

  @property
  def classes(self) -> tuple[str, ...]:
    """Names of all classes, in label order."""
    return self.state.classes if self.state else ()

  @property
  def history(self) -> tuple[dict[str, Any], ...]:
    """What each step did, the first one first."""
    return self.state.steps if self.state else ()

  @property
  def image_shape(self) -> tuple[int, int, int] | None:
    """(height, width, 3) of all images; None before the first step."""
    return tuple(self.state.image_shape) if self.state else None

  @property
  def memory(self) -> Memory:
    """What is remembered."""
    self.require_state()
    return self.open_memory(None)[0]

  @property
  def network(self) -> Network:
    """The network of the last step."""
    self.require_class()
    if self._network is None:
      self._network = self.networks.read(
        self.step, self.state.network, self.image_shape
      )
    return self._network

  def open_memory(self, task: Task | None) -> tuple[Memory, ReplayCodec | None]:
    """Memory, and the codec of methods that keep codes.

    Args:
      task: the step for which they are opened: the first one makes them. None
        if there is a state.
    """
    if self._memory is None:
      shape = self.image_shape or tuple(task.new.image_shape)
      if self.method.uses_codec:
        examples = None if self.state else task.new
        self._codec = prepare_codec(
          self.config, examples, self.path, self.strategy
        )
      folder = self.path / "memory"
      setting = Setting(self.config, folder, shape, self._codec, self.team)
      self._memory = self.method.memory(setting, self.step)
    return self._memory, self._codec

  def ledger(
    self, step: int | None = None, classifier: Classifier | None = None
  ) -> Ledger:
    """The bytes that are kept after a step.

    Args:
      step: the number of a step that is about to be committed; by default the
        last one.
      classifier: that of the step; by default that of the last one, if any.
    """
    if step is None:
      step = self.step
      if self.method.uses_old_network and self.state.network:
        classifier = self.network.classifier
    stored = dict(self.open_memory(None)[0].stored_bytes())
    if self.method.needs_old_network:
      size = self.networks.size(step)
      stored["old_network"] = size
      stored["other_models"] = stored.get("other_models", 0) + size
    if self.method.uses_old_network and classifier is not None:
      weights = classifier.up_to("logits").get_weights()
      stored["old_network_8bit"] = eight_bit_size(weights)
    return Ledger(**stored)

  def exceeds_budget(self) -> bool:
    """Whether memory has more bytes than the configuration now allows."""
    limit = self.config.memory.total_bytes
    stored = self.open_memory(None)[0].stored_bytes()
    return 0 < limit < Ledger(**stored).total

  def lock(self) -> contextlib.AbstractContextManager:
    """A context in which no other process changes the state."""
    return self._lock if self.team.is_chief else contextlib.nullcontext()

  @contextlib.contextmanager
  def changing(self) -> Iterator[None]:
    """Locks the state, and notices what other processes have done to it."""
    self.team.on_chief(lambda: refuse_foreign(self.path))
    with self.lock():
      self.refresh()
      try:
        yield
      except BaseException:
        # What is in RAM may be that of a step that never counted.
        self._memory = self._network = None
        raise

  def claim(self, print_: str) -> None:
    """Marks traces of training as those of a step, told by its data."""
    claim, is_new = self._claim(print_), self.state is None
    self.team.on_chief(lambda: claim_traces(self.path, claim, is_new=is_new))

  def is_claimed(self, print_: str) -> bool:
    """Whether traces of a step are there: it has begun and not ended."""
    claim = self._claim(print_)
    answer = self.team.ask_chief(
      lambda: "yes" if is_claimed(self.path, claim) else ""
    )
    return bool(answer)

  def commit(self, state: State, network: Network | None) -> None:
    """Makes a state the one that counts, then clears up."""
    self.team.on_chief(lambda: write_state(self.path, state))
    self.state, self._network = state, network
    self.settle()

  def settle(self) -> None:
    """Removes traces of other steps; writes what is made from the state."""
    self.memory.settle()
    if not self.state.network:
      self.networks.withdraw()
    elif not self.networks.is_published(self.step):
      self.networks.publish(self.step, self.network, self.classes)
    self.networks.keep_only(self.step)
    pictures = self.state.just_forgotten is not None
    self.team.on_chief(lambda: remove_traces(self.path, pictures=pictures))

  def refresh(self) -> None:
    """Notices what another process has learned since this one looked."""
    state = read_state(self.path)
    # All workers must take the same way, and each timed the last step itself.
    if self.team.ask_chief(lambda: "" if state == self.state else "changed"):
      self.state, self._memory, self._network = state, None, None

  def require_class(self) -> None:
    """Raises UserError if no class is known."""
    self.require_state()
    if not self.classes:
      raise UserError(f"the state {self.path} knows no class: learn some.")

  def require_state(self) -> None:
    """Raises UserError before the first step."""
    if self.state is None:
      raise UserError(f"there is no state in {self.path}: learn something.")

  def _choose(self) -> str | None:
    """Settles what "auto" is: what the state has, or a choice."""
    if self.state is None:
      return memory_choice.choose(self.config)
    for name in ("method", "codec"):
      if self.config[name] == memory_choice.AUTO:
        self.config[name] = self.state.config[name]
    return None

  def _claim(self, print_: str) -> str:
    """Tells a step in progress: its data and its configuration."""
    return json.dumps([print_, to_stored(self.config)])

  def _check_size(self) -> None:
    size = self.config.data.image_size
    if size not in (0, self.image_shape[0]):
      raise UserError(
        f"the state {self.path} has images of {self.image_shape[0]} pixels a "
        f"side, not of {size}: leave the size out, or start another state."
      )
