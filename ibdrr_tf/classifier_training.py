"""Trains a classifier on examples: once, resumably, on any devices."""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import distribution, training
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import optimizer as optimizers
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation, views_of
from ibdrr_tf.data.examples import Examples, ordered_batches
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay.feeds import Feed

__all__ = [
  "Network",
  "Recipe",
  "augmentation_of",
  "build",
  "sgd",
  "train_classifier",
  "train_further",
]

# What random numbers are for; folded into the seed so that they never meet.
# Other modules have 2 to 7.
_SHUFFLE, _WEIGHTS = range(2)
_FURTHER = 8


# Adds to batches what else an objective needs; see `Recipe.extra_inputs`.
ExtraInputs = Callable[[tf.data.Dataset, tf.data.Dataset], tf.data.Dataset]


def sgd(
  config: ml_collections.ConfigDict,
  schedule: ml_collections.ConfigDict,
  steps: int,
  factor: float,
) -> tf.keras.optimizers.Optimizer:
  """SGD as in the paper, or over one cycle.

  Args:
    config: the whole configuration.
    schedule: epochs and rates, fields as in `config.classifier`.
    steps: steps of an epoch.
    factor: by what the learning rate is multiplied.
  """
  if schedule.get("schedule", "steps") == "one_cycle":
    return optimizers.one_cycle_sgd(
      steps=schedule.epochs * steps,
      learning_rate=schedule.learning_rate * factor,
      momentum=config.classifier.momentum,
      l2=schedule.weight_decay,
    )
  return optimizers.paper_sgd(
    epochs=schedule.epochs,
    steps_per_epoch=steps,
    learning_rate=schedule.learning_rate * factor,
    momentum=config.classifier.momentum,
    l2=schedule.weight_decay,
    milestones=tuple(schedule.milestones),
    factor=schedule.decay_factor,
    warmup_epochs=schedule.warmup_epochs,
    warmup_share=schedule.warmup_share,
  )


def augmentation_of(config: ml_collections.ConfigDict) -> Augmentation:
  """How a classifier's images vary in training."""
  recipe = config.classifier
  return Augmentation(recipe.padding, is_strong=recipe.augment == "strong")


@dataclasses.dataclass(frozen=True)
class Recipe:
  """What a method may choose about the training of one classifier.

  Attributes:
    kind: how the classifier is trained.
    network: more options of `build_classifier`: head, last_relu, conv,
      backbones, frozen_below.
    frozen_gradients: whether gradients pass the classifier while its batch
      normalisation is frozen, of which GPUs have no deterministic fused form.
    schedule: epochs and rates; None is `config.classifier`.
    optimizer: see `sgd`.
    start: sets a new classifier's weights; None leaves them random.
    objective: gives a loss that looks at more than logits, and the names of its
      parts; None, or a function that gives None, is the cross-entropy over all
      classes. It may also set options of the classifier's class.
    extra_inputs: adds to batches (images, labels) what else the objective
      needs. It gets the batches of a range of epochs and int64 batch ids,
      unique within the step.
  """

  kind: type[classifiers.Classifier] = classifiers.Classifier
  network: dict[str, Any] = dataclasses.field(default_factory=dict)
  frozen_gradients: bool = False
  schedule: ml_collections.ConfigDict | None = None
  optimizer: Callable[..., tf.keras.optimizers.Optimizer] = sgd
  start: Callable[[classifiers.Classifier], None] | None = None
  objective: (
    Callable[
      [classifiers.Classifier],
      tuple[classifiers.Objective, Sequence[str]] | None,
    ]
    | None
  ) = None
  extra_inputs: ExtraInputs | None = None


class Network:
  """A trained classifier, and how it looks at examples.

  Args:
    classifier: the Keras model.
    batch_size: images that it looks at together.
    views: as how many views it sees an image that it classifies; see
      `augment.views_of`.

  Attributes:
    classifier: the Keras model.
  """

  def __init__(
    self,
    classifier: classifiers.Classifier,
    batch_size: int,
    views: int = 1,
  ):
    self.classifier = classifier
    self.views = views
    self._batch_size = batch_size
    self._embed = classifier.embed

  @property
  def classes(self) -> int:
    """Number of classes that it knows."""
    return self.classifier.classes

  def features(self, examples: Examples, views: int = 1) -> np.ndarray:
    """Features of each example, averaged over views: float32 [n, d]."""
    return np.mean(
      [
        self._embed.predict(ordered_batches(v, self._batch_size), verbose=0)
        for v in views_of(examples, views)
      ],
      axis=0,
    )

  def logits(self, examples: Examples) -> np.ndarray:
    """Outputs before the softmax, without augmentation: [n, classes]."""
    if not len(examples):
      return np.zeros([0, self.classes], np.float32)
    batches = ordered_batches(examples, self._batch_size)
    return self.classifier.predict(batches, verbose=0)

  def outputs(self, layer: str, examples: Examples) -> np.ndarray:
    """Outputs of a layer for each example, without augmentation: float32."""
    model = self.classifier.up_to(layer)
    if not len(examples):
      return np.zeros([0, *model.output_shape[1:]], np.float32)
    batches = ordered_batches(examples, self._batch_size)
    return model.predict(batches, verbose=0).astype(np.float32)

  def probabilities(self, examples: Examples) -> np.ndarray:
    """Softmax outputs, averaged over views: float32 [n, classes]."""
    views = views_of(examples, self.views)
    outputs = [tf.nn.softmax(self.logits(view)).numpy() for view in views]
    return np.mean(outputs, axis=0)


def build(
  config: ml_collections.ConfigDict,
  strategy: tf.distribute.Strategy,
  *,
  classes: int,
  image_shape: tuple[int, int, int],
  recipe: Recipe,
) -> classifiers.Classifier:
  """A new classifier, made within the strategy's scope."""
  precision = config.precision
  if precision == "auto":
    precision = classifiers.fastest_precision(config.classifier.width)
  with strategy.scope():
    return classifiers.build_classifier(
      backbone=config.classifier.backbone,
      width=config.classifier.width,
      image_shape=image_shape,
      classes=classes,
      synchronized=recipe.frozen_gradients or strategy.num_replicas_in_sync > 1,
      stem=config.classifier.stem,
      kind=recipe.kind,
      precision=precision,
      **recipe.network,
    )


def train_classifier(
  examples: Examples | Feed,
  *,
  classes: int,
  image_shape: tuple[int, int, int],
  config: ml_collections.ConfigDict,
  strategy: tf.distribute.Strategy,
  folder: pathlib.Path,
  recipe: Recipe | None = None,
  step: int = 0,
  title: str = "classifier",
) -> tuple[Network, float]:
  """Trains a classifier; an interrupted training goes on after its last epoch.

  Args:
    examples: what to train on.
    classes: number of classes that the classifier knows.
    image_shape: (height, width, 3).
    config: the whole configuration; `classifier` is the recipe.
    strategy: the classifier is made within its scope.
    folder: gets `checkpoints/` and `tensorboard/`.
    recipe: what a method does differently.
    step: its number; each has its own random numbers and traces.
    title: for the progress bar.

  Returns:
    The trained network, and the seconds that training took.
  """
  recipe = recipe or Recipe()
  replicas = strategy.num_replicas_in_sync
  steps = examples.steps(config.classifier.batch_size, replicas)
  schedule = ml_collections.ConfigDict(recipe.schedule or config.classifier)
  # Few images make short epochs: as many more as the updates ask for.
  schedule.epochs = max(schedule.epochs, -(-config.classifier.updates // steps))
  # Initial weights depend on (seed, step) alone, not on what ran before.
  seed = stream.fold_in(config.seed, step, _WEIGHTS)
  set_random_seed(int(seed[0].numpy()) & 0x7FFFFFFF)
  classifier = build(
    config, strategy, classes=classes, image_shape=image_shape, recipe=recipe
  )
  _compile(classifier, examples, config, schedule, recipe.optimizer)
  if recipe.start:
    recipe.start(classifier)
  if recipe.objective:
    objective = recipe.objective(classifier)
    if objective:
      with strategy.scope():
        classifier.set_objective(*objective)
  seconds = _fit(
    classifier,
    examples,
    config,
    epochs=schedule.epochs,
    extra_inputs=recipe.extra_inputs,
    seed=stream.fold_in(config.seed, step, _SHUFFLE),
    checkpoints=folder / "checkpoints" / f"step-{step:03d}" / "classifier",
    tensorboard=folder / "tensorboard" / "classifier",
    title=title,
    step=step,
  )
  views = config.classifier.test_views
  return Network(classifier, config.eval_batch_size, views), seconds


def train_further(
  network: Network,
  examples: Examples,
  *,
  config: ml_collections.ConfigDict,
  schedule: ml_collections.ConfigDict,
  folder: pathlib.Path,
  optimizer: Callable[..., tf.keras.optimizers.Optimizer] = sgd,
  extra_inputs: ExtraInputs | None = None,
  step: int,
  title: str,
) -> float:
  """Trains a network that a step has trained on other examples as well.

  It keeps its objective. Interrupted, it goes on after its last epoch, once the
  training before it has been restored.

  Args:
    network: of `train_classifier`, changed in place.
    examples: what to train on.
    config: see `train_classifier`, as are `folder`, `step` and `title`.
    schedule: epochs and rates, fields as in `config.classifier`.
    folder: of the state.
    optimizer: see `sgd`.
    extra_inputs: see `Recipe`.
    step: number of the step.
    title: for the progress bar.

  Returns:
    The seconds that it took.
  """
  _compile(network.classifier, examples, config, schedule, optimizer)
  return _fit(
    network.classifier,
    examples,
    config,
    epochs=schedule.epochs,
    extra_inputs=extra_inputs,
    seed=stream.fold_in(config.seed, step, _FURTHER),
    checkpoints=folder / "checkpoints" / f"step-{step:03d}" / "further",
    tensorboard=folder / "tensorboard" / "classifier further",
    title=title,
    step=step,
  )


def _steps(
  classifier: classifiers.Classifier,
  examples: Examples | Feed,
  config: ml_collections.ConfigDict,
) -> int:
  """Updates of an epoch."""
  replicas = classifier.distribute_strategy.num_replicas_in_sync
  return examples.steps(config.classifier.batch_size, replicas)


def _compile(
  classifier: classifiers.Classifier,
  examples: Examples | Feed,
  config: ml_collections.ConfigDict,
  schedule: ml_collections.ConfigDict,
  optimizer: Callable[..., tf.keras.optimizers.Optimizer],
) -> None:
  strategy = classifier.distribute_strategy
  factor = distribution.learning_rate_factor(config, strategy)
  options = {}
  if isinstance(examples, Feed):
    options["prepare"] = examples.preparation(augmentation_of(config))
  steps = _steps(classifier, examples, config)
  with strategy.scope():
    classifier.compile(
      optimizer(config, schedule, steps, factor),
      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      # Not by its name: Keras would make its variables within the first
      # step, and so build the graph of that step twice.
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy("accuracy")],
      **options,
    )


def _fit(
  classifier: classifiers.Classifier,
  examples: Examples | Feed,
  config: ml_collections.ConfigDict,
  *,
  extra_inputs: ExtraInputs | None,
  seed: tf.Tensor,
  **job: Any,
) -> float:
  """Fits a compiled classifier; `job` are other fields of `training.Fit`."""
  steps = _steps(classifier, examples, config)

  def batches(epochs: range, share: stream.Share) -> tf.data.Dataset:
    pairs = examples.training_batches(
      batch_size=config.classifier.batch_size,
      epochs=epochs,
      seed=seed,
      augment=augmentation_of(config),
      share=share,
    )
    if not extra_inputs:
      return pairs
    passed = range(epochs.start * steps, epochs.stop * steps)
    return extra_inputs(pairs, share.numbers(passed))

  try:
    return training.fit(
      classifier, training.Fit(steps_per_epoch=steps, batches=batches, **job)
    )
  except tf.errors.OpError as error:
    if isinstance(examples, Feed) and examples.failure:
      raise examples.failure from error
    raise
