"""What all methods share: how a classifier is trained in a phase."""

import abc
import pathlib
from collections.abc import Sequence
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import distribution, training
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import optimizer as optimizers
from ibdrr_tf.data import stream
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.source import Source
from ibdrr_tf.replay import exemplars, selection

__all__ = ["Method"]

# What random numbers are for; folded into the seed so that they never meet.
_SHUFFLE, _WEIGHTS = range(2)


class Method(abc.ABC):
  """Learns classes phase after phase.

  In each phase the experiment calls `learn`, then `remember`. A subclass says
  what the classifier is trained on (`examples`), what is kept for later
  (`remember`, `stored_bytes`), and may start from old weights (`initialize`).

  Under several workers all of them run all of this; files are written within
  `team.on_chief`, and read by all.

  Args:
    config: the run's configuration.
    scenario: classes and phases.
    source: the data set.
    workdir: where `memory/`, `checkpoints/` and `tensorboard/` are.
    strategy: models and optimisers are made within its scope.

  Attributes:
    uses_codec: whether the constructor also takes the run's `codec`.
    classifier_class: how the classifier is trained.
    frozen_gradients: whether gradients pass the classifier while its batch
      normalisation is frozen, of which GPUs have no deterministic fused form.
    team: the workers that train together.
    classifier: the network after the last phase learned; None before the first.
  """

  uses_codec = False
  frozen_gradients = False
  classifier_class: type[classifiers.Classifier] = classifiers.Classifier

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    scenario: Scenario,
    source: Source,
    workdir: pathlib.Path,
    strategy: tf.distribute.Strategy,
  ):
    self.config = config
    self.scenario = scenario
    self.source = source
    self.workdir = workdir
    self.strategy = strategy
    self.team = distribution.Team(strategy)
    self.classifier: classifiers.Classifier | None = None

  @abc.abstractmethod
  def examples(self, phase: int) -> stream.Examples:
    """What the classifier is trained on in a phase."""

  def compile_options(self, examples: stream.Examples) -> dict[str, Any]:
    """More arguments for the `compile` of the classifier's class."""
    return {}

  def schedule(self, phase: int) -> ml_collections.ConfigDict:
    """Epochs and learning rate of a phase; fields as in config.classifier."""
    return self.config.classifier

  def build(self, phase: int, **options: Any) -> classifiers.Classifier:
    """A new classifier over all classes seen in a phase; within the scope.

    Args:
      phase: how many classes it knows.
      **options: of `build_classifier`.
    """
    config = self.config.classifier
    return classifiers.build_classifier(
      backbone=config.backbone,
      width=config.width,
      image_shape=self.source.train.image_shape,
      classes=self.scenario.classes_seen(phase),
      synchronized=self.frozen_gradients
      or self.strategy.num_replicas_in_sync > 1,
      stem=config.stem,
      kind=self.classifier_class,
      mixed_precision=self.config.mixed_precision,
      **options,
    )

  def optimizer(self, phase: int, steps: int) -> tf.keras.optimizers.Optimizer:
    """The optimiser of a phase whose epochs have so many steps."""
    schedule = self.schedule(phase)
    return optimizers.paper_sgd(
      epochs=schedule.epochs,
      steps_per_epoch=steps,
      learning_rate=schedule.learning_rate * self.rate_factor,
      momentum=self.config.classifier.momentum,
      l2=schedule.weight_decay,
      milestones=tuple(schedule.milestones),
      factor=schedule.decay_factor,
      warmup_epochs=schedule.warmup_epochs,
      warmup_share=schedule.warmup_share,
    )

  @property
  def rate_factor(self) -> float:
    """By what learning rates are multiplied; see `learning_rate_factor`."""
    return distribution.learning_rate_factor(self.config, self.strategy)

  def objective(
    self, phase: int, classifier: classifiers.Classifier
  ) -> tuple[classifiers.Objective, Sequence[str]] | None:
    """A loss that looks at more than logits, and the names of its parts.

    None is the cross-entropy over all classes seen.
    """
    return None

  def accompany(
    self, phase: int, batches: tf.data.Dataset, numbers: tf.data.Dataset
  ) -> tf.data.Dataset:
    """Adds to batches (images, labels) what else the objective needs.

    Args:
      phase: which is learned.
      batches: of a range of epochs.
      numbers: of each of them, int64; no other of the phase has the same.
    """
    return batches

  def initialize(self, classifier: classifiers.Classifier) -> None:
    """Sets a new classifier's weights; from scratch unless overridden."""

  def remember(self, phase: int) -> None:
    """Keeps what later phases will need of this one. May be called again."""

  @abc.abstractmethod
  def stored_bytes(self, phase: int) -> dict[str, int]:
    """Bytes kept after a phase, by the ledger's names; also `images`."""

  def learn(self, phase: int) -> float:
    """Trains the classifier of a phase; returns the seconds it took.

    A phase that was interrupted goes on after its last finished epoch.
    """
    classifier, job = self._job(phase)
    objective = self.objective(phase, classifier)
    if objective:
      with self.strategy.scope():
        classifier.set_objective(*objective)
    seconds = training.fit(classifier, job)
    self.classifier = classifier
    return seconds

  def restore(self, phase: int) -> float:
    """Takes up the classifier of a finished phase; returns its seconds."""
    classifier, job = self._job(phase)
    seconds = training.restore_finished(classifier, job)
    self.classifier = classifier
    return seconds

  def _job(self, phase: int) -> tuple[classifiers.Classifier, training.Fit]:
    """The classifier of a phase, untrained, and what to train it on."""
    config = self.config.classifier
    examples = self.examples(phase)
    replicas = self.strategy.num_replicas_in_sync
    steps = examples.steps(config.batch_size, replicas)
    classifier = self._compiled(phase, steps, self.compile_options(examples))
    seed = stream.fold_in(self.config.seed, phase, _SHUFFLE)

    def batches(epochs: range, share: stream.Share) -> tf.data.Dataset:
      images_and_labels = examples.training_batches(
        batch_size=config.batch_size,
        epochs=epochs,
        seed=seed,
        padding=config.padding,
        share=share,
      )
      passed = range(epochs.start * steps, epochs.stop * steps)
      return self.accompany(phase, images_and_labels, share.numbers(passed))

    return (
      classifier,
      training.Fit(
        epochs=self.schedule(phase).epochs,
        steps_per_epoch=steps,
        batches=batches,
        checkpoints=self.workdir / "checkpoints" / f"phase-{phase:03d}",
        tensorboard=self.workdir / "tensorboard" / f"phase-{phase:03d}",
        title=f"phase {phase}, {classifier.classes} classes",
      ),
    )

  @property
  def selection(self) -> str:
    """How exemplars are chosen: one of `selection.SELECTIONS`."""
    return self.config.memory.selection

  @property
  def exemplars_per_class(self) -> int:
    """How many raw images of each class are kept, by those who keep some."""
    return self.config.memory.exemplars_per_class

  def choose_exemplars(self, new: stream.Examples) -> np.ndarray:
    """Which of a phase's images to keep raw: their indices, class by class."""
    count = self.exemplars_per_class
    chosen = []
    for label in np.unique(new.labels):
      members = np.flatnonzero(new.labels == label)
      if self.selection == "herding":
        one_class = stream.take(new, members)
        picked = selection.herd(self.features(one_class), count)
      else:
        seed = (self.config.seed, int(label))
        picked = selection.pick_random(len(members), count, seed)
      chosen.append(members[picked])
    # Workers on other hardware may see features that differ in a last bit, and
    # so choose others: the chief decides.
    mine = np.concatenate(chosen)
    return self.team.gather(mine if self.team.is_chief else mine[:0])

  def exemplar_sizes(self, most: int) -> list[np.ndarray]:
    """Bytes that raw images of each class would take, before any is chosen.

    All classes of the run are looked at, so that a budget holds after the last
    phase with one number for all. What herding will take depends on a network
    that is not there yet: the largest images then, which no choice can exceed.

    Args:
      most: how many images of a class have to be known.

    Returns:
      For each label, int64 [at least `most`, or all there are], in the order of
      taking them.
    """
    herds = self.selection == "herding"
    sizes = []
    for label in range(len(self.scenario.order)):
      one_class = stream.select(
        self.source.train, self.scenario, range(label, label + 1)
      )
      order = selection.random_order(len(one_class), (self.config.seed, label))
      taken = order if herds else order[:most]
      images = one_class.read(tf.constant(taken)).numpy()
      encoded = np.array([len(exemplars.encode(image)) for image in images])
      sizes.append(np.sort(encoded)[::-1] if herds else encoded)
    return sizes

  def new_examples(self, phase: int) -> stream.Examples:
    """The raw training images of the classes that a phase introduces."""
    labels = self.scenario.new_labels(phase)
    return stream.select(self.source.train, self.scenario, labels)

  def predict(self, examples: stream.Examples) -> np.ndarray:
    """Names the class of each example: int64 [n]."""
    return self.probabilities(examples).argmax(axis=1)

  def probabilities(self, examples: stream.Examples) -> np.ndarray:
    """What the classifier makes of each example: float32 [n, classes]."""
    batches = stream.ordered_batches(examples, self.config.eval_batch_size)
    logits = self.classifier.predict(batches, verbose=0)
    return tf.nn.softmax(logits).numpy()

  def other_predictions(self, examples: stream.Examples) -> dict[str, Any]:
    """What other classifiers of this method say, by name: int64 [n] each."""
    return {}

  def features(self, examples: stream.Examples) -> np.ndarray:
    """Features of each example, without augmentation: float32 [n, d]."""
    batches = stream.ordered_batches(examples, self.config.eval_batch_size)
    return self.classifier.embed.predict(batches, verbose=0)

  def _compiled(
    self, phase: int, steps: int, options: dict[str, Any]
  ) -> classifiers.Classifier:
    """A classifier over all classes seen, ready to be trained in a phase."""
    # Initial weights depend on (seed, phase) alone, not on what ran before.
    seed = stream.fold_in(self.config.seed, phase, _WEIGHTS)
    tf.keras.utils.set_random_seed(int(seed[0].numpy()) & 0x7FFFFFFF)
    with self.strategy.scope():
      classifier = self.build(phase)
      classifier.compile(
        self.optimizer(phase, steps),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # Not by its name: Keras would make its variables within the first
        # step, and so build the graph of that step twice.
        metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
        **options,
      )
    self.initialize(classifier)
    return classifier

  def _continue_from_last(self, classifier: classifiers.Classifier) -> None:
    """Starts from the weights of the phase before, with a larger head."""
    if self.classifier is not None:
      classifiers.grow_head(self.classifier, classifier)
