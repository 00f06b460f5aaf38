"""What methods share that learn from the network of the phase before."""

import ml_collections
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.data import stream
from ibdrr_tf.methods.base import Method
from ibdrr_tf.replay.networks import NetworkStore

__all__ = ["Distilling"]


class Distilling(Method):
  """Keeps a copy of its network, which teaches the next phase.

  To be combined with a method that says what is learned from, as in
  `class LwF(Distilling, Finetune)`. The copy is the file
  `memory/network-<phase>.npz`, float32 weights and batch statistics. It is
  counted as `other_models` after every phase, the last one too: whoever goes on
  needs it. The classifier that is in use is not counted, here as elsewhere.
  """

  initialize = Method._continue_from_last

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self._networks = NetworkStore(self.workdir / "memory", "network")

  @property
  def section(self) -> ml_collections.ConfigDict:
    """The part of the configuration that is about this method."""
    return self.config[self.config.method]

  def schedule(self, phase: int) -> ml_collections.ConfigDict:
    """The method's own, for the base phase or for increments."""
    schedule = self.section.increment if phase else self.section.base
    schedule = ml_collections.ConfigDict(schedule)
    schedule.epochs = schedule.epochs or self.config.classifier.epochs
    return schedule

  def learn(self, phase: int) -> float:
    """Trains the classifier of a phase; returns the seconds it took."""
    if self._networks.holds(phase):
      # Killed after this phase was remembered: its teacher is gone, and nothing
      # is left to learn.
      return self.restore(phase)
    return super().learn(phase)

  def remember(self, phase: int) -> None:
    """Keeps the network of this phase instead of the one before."""
    super().remember(phase)
    self.keep_network(self._networks, phase, self.classifier.up_to("logits"))

  def keep_network(
    self, store: NetworkStore, phase: int, network: tf.keras.Model
  ) -> None:
    """Keeps a network; all workers read it, the chief writes it down."""
    weights = network.get_weights()
    self.team.on_chief(lambda: store.write(phase, weights))

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """What is kept beside the network, and the network."""
    stored = super().stored_bytes(phase)
    return {**stored, "other_models": self._networks.stored_bytes}

  def teacher(self, phase: int) -> classifiers.Classifier:
    """The network of the phase before, as it is kept."""
    with self.strategy.scope():
      network = self.build(phase - 1)
    self._networks.read(phase - 1, network.up_to("logits"))
    return network

  def new_features(self, phase: int) -> list:
    """Features of each new class by the last network: float32 [n, d] each."""
    return [
      self.features(
        stream.select(self.source.train, self.scenario, range(label, label + 1))
      )
      for label in self.scenario.new_labels(phase)
    ]
