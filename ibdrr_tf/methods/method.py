"""A method is one row: its memory, start, objective and prediction."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import choices, classifier_training
from ibdrr_tf.classifier_training import Network, Recipe
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import warm_start
from ibdrr_tf.classifiers.information_back import ReplayClassifier
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.data.task import Task
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.feeds import Feed
from ibdrr_tf.replay.memory import Memory, Setting
from ibdrr_tf.replay.replayed_memory import ReplayedMemory

__all__ = [
  "METHODS",
  "Method",
  "Step",
  "argmax",
  "check_method",
  "cross_entropy",
  "from_last",
  "from_scratch",
  "learn_step",
  "method_named",
  "nearest_mean",
  "recipe_of",
  "register_method",
  "shrink_perturb",
]

METHODS: dict[str, "Method"] = {}


@dataclasses.dataclass(frozen=True)
class Step:
  """A step in progress: all that a method's functions may look at.

  Attributes:
    config: the whole configuration.
    strategy: models are made within its scope.
    folder: of the state; traces of training go there.
    task: the new images.
    memory: what earlier steps have kept.
    old: the network of the step before; None in the first step.
  """

  config: ml_collections.ConfigDict
  strategy: tf.distribute.Strategy
  folder: pathlib.Path
  task: Task
  memory: Memory
  old: Network | None

  @property
  def section(self) -> ml_collections.ConfigDict:
    """The part of the configuration that is about this method."""
    return self.config[self.config.method]

  @property
  def team(self) -> Team:
    """The workers that train together."""
    return Team(self.strategy)


def from_scratch(step: Step, classifier: classifiers.Classifier) -> None:
  """Starts from random weights."""


def from_last(step: Step, classifier: classifiers.Classifier) -> None:
  """Starts from the weights of the step before, with a larger head."""
  if step.old is not None:
    classifiers.grow_head(step.old.classifier, classifier)


def shrink_perturb(step: Step, classifier: classifiers.Classifier) -> None:
  """Starts from the last weights, shrunk, plus a part of random ones."""
  if step.old is not None:
    recipe = step.config.classifier
    warm_start.shrink_perturb(
      step.old.classifier, classifier, recipe.shrink, recipe.perturb
    )


def cross_entropy(step: Step, classifier: classifiers.Classifier) -> None:
  """Minimises the cross-entropy over all classes: the objective as compiled."""


def argmax(network: Network, memory: Memory, examples: Examples) -> np.ndarray:
  """Probabilities of each class, float32 [n, classes]: softmax outputs."""
  return network.probabilities(examples)


def nearest_mean(
  network: Network, memory: Memory, examples: Examples
) -> np.ndarray:
  """Probabilities from cosines with the means of each class' exemplars.

  They are the softmax of ten times the cosines, so that the nearest mean is
  named. A class without exemplars is never named.
  """
  features = network.features(examples, network.views)
  lengths = np.linalg.norm(features, axis=1, keepdims=True)
  cosines = features / np.maximum(lengths, 1e-12) @ memory.means(network).T
  cosines = np.where(np.isnan(cosines), -1.0, cosines)
  # Classes without exemplars may be the last ones.
  missing = network.classes - cosines.shape[1]
  cosines = np.pad(cosines, [(0, 0), (0, missing)], constant_values=-1.0)
  return tf.nn.softmax(10.0 * cosines).numpy()


@dataclasses.dataclass(frozen=True)
class Method:
  """How a classifier learns over time.

  Attributes:
    memory: makes the method's memory from (setting, step).
    start: sets the weights of a step's new classifier.
    objective: gives the loss of a step, and the names of its parts; None where
      it is the one that the classifier is compiled with.
    predict: gives a probability for each class: float32 [n, classes].
    predicts_from_memory: whether `predict` looks at the memory; else it may
      get None for it.
    also: other predictions to report, by name.
    network: gives more options of `build_classifier`: (section, old classes,
      whether it is the first step).
    optimizer: see `classifier_training.sgd`.
    extra_inputs: adds what else the objective needs to batches.
    finish: changes the network after training, e.g. by training it further;
      gives the seconds that it took. A step that was interrupted does it again.
    needs_old_network: whether the next step learns from this network; the
      ledger then counts it as one of `other_models`.
    own_schedule: whether epochs and rates are those of the method's own section
      of the configuration.
    frozen_gradients: see `Recipe`.
    grows: whether each step that brings new classes adds a backbone.
    has_budget: whether its memory can hold a byte budget by keeping less.
  """

  memory: Callable[[Setting, int | None], Memory]
  start: Callable[[Step, classifiers.Classifier], None] = from_scratch
  objective: Callable[
    [Step, classifiers.Classifier],
    tuple[classifiers.Objective, Sequence[str]] | None,
  ] = cross_entropy
  predict: Callable[[Network, Memory, Examples], np.ndarray] = argmax
  predicts_from_memory: bool = False
  also: Mapping[str, Callable[[Network, Memory, Examples], np.ndarray]] = (
    dataclasses.field(default_factory=dict)
  )
  network: Callable[[int, bool], dict[str, Any]] = lambda old, first: {}
  optimizer: Callable[..., tf.keras.optimizers.Optimizer] = (
    classifier_training.sgd
  )
  extra_inputs: (
    Callable[[Step, tf.data.Dataset, tf.data.Dataset], tf.data.Dataset] | None
  ) = None
  finish: Callable[[Step, Network], float] | None = None
  needs_old_network: bool = False
  own_schedule: bool = False
  frozen_gradients: bool = False
  grows: bool = False
  has_budget: bool = True

  @property
  def uses_old_network(self) -> bool:
    """Whether the next step uses this network: to start from, or to learn."""
    return self.needs_old_network or self.start is not from_scratch

  @property
  def uses_codec(self) -> bool:
    """Whether its memory keeps codes."""
    return getattr(self.memory, "func", self.memory).uses_codec

  @property
  def raw_images(self) -> tuple[str, ...]:
    """Values that `memory.information_back` may have."""
    kind = getattr(self.memory, "func", self.memory)
    if not issubclass(kind, ReplayedMemory):
      return ("none",)
    fixed = getattr(self.memory, "keywords", {}).get("raw")
    return choices.RAW_IMAGES if fixed is None else ("none", fixed)


def register_method(name: str) -> Callable[[Method], Method]:
  """Adds a method to those that `--method` knows.

  Usage, in a file of one's own that `--plugin=FILE.py` names:

  >>> register_method("mine")(Method(memory=CodeMemory, start=from_last))
  """

  def register(method: Method) -> Method:
    if not isinstance(method, Method):
      raise UserError(
        f"the method {name!r} is a {type(method).__name__}: give a Method."
      )
    METHODS[name] = method
    choices.METHODS.add(name)
    return method

  return register


def method_named(name: str) -> Method:
  """The method of a name; a sentence if there is none."""
  choices.check_method_name(name, METHODS)
  return METHODS[name]


def check_method(config: ml_collections.ConfigDict) -> Method:
  """The method of a configuration, if its options suit it.

  With `classifier.start=shrink_perturb`, methods that start from scratch start
  from their last weights instead.
  """
  method, memory = method_named(config.method), config.memory
  back = memory.information_back
  if back not in method.raw_images:
    others = [
      name
      for name, other in sorted(METHODS.items())
      if back in other.raw_images
    ]
    raise UserError(
      f"config.memory.information_back={back} is not for "
      f"--method={config.method}: leave it out, or choose from "
      f"{', '.join(others)}."
    )
  kind = getattr(method.memory, "func", method.memory)
  fixed = getattr(method.memory, "keywords", {}).get("raw") or back
  if (
    memory.selection == "distribution"
    and issubclass(kind, ReplayedMemory)
    and fixed == "exemplars"
  ):
    raise UserError(
      f"config.memory.selection=distribution is not for "
      f"--method={config.method}, whose raw images belong to its first "
      f"reconstructions of a class: choose another rule."
    )
  if memory.total_bytes and not method.has_budget:
    raise UserError(
      f"config.memory.total_bytes is not for --method={config.method}, which "
      f"has no images to keep fewer of: leave it out."
    )
  is_warm = config.classifier.start == "shrink_perturb"
  if is_warm and method.start is from_scratch:
    return dataclasses.replace(method, start=shrink_perturb)
  return method


def recipe_of(
  method: Method,
  config: ml_collections.ConfigDict,
  *,
  old_classes: int,
  backbones: int = 1,
  kind: type[classifiers.Classifier] = classifiers.Classifier,
) -> Recipe:
  """How a method's classifier is built and scheduled after some classes."""
  first = not old_classes
  schedule = None
  if method.own_schedule:
    section = config[config.method]
    schedule = ml_collections.ConfigDict(
      section.base if first else section.increment
    )
    schedule.epochs = schedule.epochs or config.classifier.epochs
  return Recipe(
    kind=kind,
    network={**method.network(old_classes, first), "backbones": backbones},
    frozen_gradients=method.frozen_gradients,
    schedule=schedule,
    optimizer=method.optimizer,
  )


def learn_step(method: Method, step: Step) -> tuple[Network, float]:
  """Trains the classifier of a step; the memory is not changed.

  Returns:
    The network, and the seconds that training took.
  """
  task = step.task
  examples = step.memory.examples(task)
  backbones = 1
  if method.grows and step.old:
    backbones = step.old.classifier.backbones + bool(task.new_labels)
  recipe = recipe_of(
    method,
    step.config,
    old_classes=task.old_classes,
    backbones=backbones,
    kind=(
      ReplayClassifier if isinstance(examples, Feed) else classifiers.Classifier
    ),
  )
  extra = method.extra_inputs
  recipe = dataclasses.replace(
    recipe,
    start=lambda classifier: method.start(step, classifier),
    objective=lambda classifier: method.objective(step, classifier),
    extra_inputs=(
      None
      if extra is None or step.old is None
      else lambda batches, ids: extra(step, batches, ids)
    ),
  )
  network, seconds = classifier_training.train_classifier(
    examples,
    classes=task.classes,
    image_shape=task.new.image_shape,
    config=step.config,
    strategy=step.strategy,
    folder=step.folder,
    recipe=recipe,
    step=task.step,
    title=f"step {task.step}, {task.classes} classes",
  )
  if method.finish:
    seconds += method.finish(step, network)
  return network, seconds
