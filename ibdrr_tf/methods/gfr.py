"""GFR: features of old classes from a generator, and no images at all."""

import functools

import numpy as np
import tensorflow as tf

from ibdrr_tf import distribution, training
from ibdrr_tf.classifier_training import Network, augmentation_of
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.classifiers import optimizer as optimizers
from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import feature_gan
from ibdrr_tf.replay.memory import Memory
from ibdrr_tf.replay.networks import read_network, write_network

__all__ = ["GFR", "FeatureMemory", "feature_distance", "old_factor"]

# Folded into the seed; classifier_training has 0 and 1, mnemonics.py 2.
_REPLAY, _GAN, _VIEWS, _GAN_WEIGHTS = range(3, 7)
# How often the state of the generator's training is kept.
_CHECKPOINTS = 20


def feature_distance(features: tf.Tensor, old_features: tf.Tensor) -> tf.Tensor:
  """|features - old features|_2 of a whole batch [b, d], over all replicas.

  One norm for all of it, as `torch.dist` gives, not a mean of norms.
  """
  difference = features - tf.stop_gradient(old_features)
  squares = losses.over_replicas(
    tf.distribute.ReduceOp.SUM, tf.reduce_sum(tf.square(difference))
  )
  # A step begins with equal features, where the root has no slope.
  return tf.sqrt(tf.maximum(squares, 1e-12))


def old_factor(old_classes: int, new_classes: int) -> int:
  """How many steps' worth of classes are old: r of the loss.

  The released code says it by phases, base // new + phase - 1, which is the
  same where all phases after the base phase are alike.
  """
  return old_classes // max(new_classes, 1)


class FeatureMemory(Memory):
  """A generator of features and its critic, which learn each step's classes.

  As in the released code the critic goes on from the last step too, hence its
  copy is kept and counted. Unlike there, the inputs for labels grow with the
  classes, and the generator learns after every step: nobody knows which is the
  last. A generator's step draws its images at random instead of in epochs, of
  which it makes as many as configured; and features are those of `gfr.views`
  augmented views of the data, computed once, instead of a new view for each
  epoch.
  """

  def examples(self, task: Task) -> Examples:
    """The new images."""
    return task.new

  def add(self, task: Task, network: Network) -> None:
    """Trains the generator on the features of the new images."""
    gan = self._train(task, network)
    self._write(
      task.step,
      {
        "generator": (task.classes, gan.generator.get_weights()),
        "critic": (task.classes, gan.critic.get_weights()),
      },
      network.classifier.embed.output_shape[-1],
    )

  def forget(self, step: int, label: int) -> None:
    """Takes the class out of the generator's and the critic's inputs."""
    part = self.folder.parts["generator"]
    if part["classes"] == 1:
      self.folder.write(step, {})
      return
    weights = {
      name: (
        part["classes"] - 1,
        feature_gan.without_class(self.network(name), label),
      )
      for name in ("generator", "critic")
    }
    self._write(step, weights, part["features"])

  def network(self, name: str) -> tf.keras.Model:
    """The kept "generator" or "critic"."""
    part, section = self.folder.parts[name], self.config.gfr
    if name == "generator":
      model = feature_gan.build_generator(
        section.noise, part["classes"], section.hidden, part["features"]
      )
    else:
      model = feature_gan.build_critic(
        part["features"], part["classes"], section.hidden
      )
    (file,) = part["files"]
    read_network(self.folder.path / file, model)
    return model

  def _write(
    self,
    step: int,
    networks: dict[str, tuple[int, list[np.ndarray]]],
    features: int,
  ) -> None:
    """Writes networks, each with its number of classes, and the manifest."""
    parts = {}
    for name, (classes, weights) in networks.items():
      path = self.folder.new_file(name, step, "npz")
      self.folder.team.on_chief(functools.partial(write_network, path, weights))
      parts[name] = {
        "files": {path.name: path.stat().st_size},
        "classes": classes,
        "features": features,
      }
    self.folder.write(step, parts)

  def stored_bytes(self) -> dict[str, int]:
    """Generator and critic; no images."""
    sizes = [
      size
      for part in self.folder.parts.values()
      for size in part["files"].values()
    ]
    return {**super().stored_bytes(), "other_models": sum(sizes)}

  def _train(self, task: Task, network: Network) -> feature_gan.FeatureGAN:
    """Trains the generator; an interrupted training goes on."""
    config, new = self.config.gfr, task.new
    steps = config.generator_epochs * new.steps(config.generator_batch_size)
    rounds = max(1, steps // config.critic_steps)
    per_checkpoint = -(-rounds // _CHECKPOINTS)
    state, name = self.folder.path.parent, f"step-{task.step:03d}"
    gan = self._build_gan(task, network, rounds)
    training.fit(
      gan,
      training.Fit(
        epochs=-(-rounds // per_checkpoint),
        steps_per_epoch=per_checkpoint,
        batches=lambda epochs, share: self._batches(
          task,
          network,
          range(epochs.start * per_checkpoint, epochs.stop * per_checkpoint),
          share,
        ),
        checkpoints=state / "checkpoints" / name / "generator",
        tensorboard=state / "tensorboard" / "generator",
        title=f"generator, step {task.step}",
        step=task.step,
      ),
    )
    return gan

  def _build_gan(
    self, task: Task, network: Network, rounds: int
  ) -> feature_gan.FeatureGAN:
    """Generator and critic, compiled; they go on from those of the last step.

    Args:
      task: the step.
      network: whose features are learned.
      rounds: steps of the generator.
    """
    config = self.config.gfr
    strategy = network.classifier.distribute_strategy
    factor = distribution.learning_rate_factor(self.config, strategy)
    seed = stream.fold_in(self.config.seed, task.step, _GAN_WEIGHTS)
    set_random_seed(int(seed[0].numpy()) & 0x7FFFFFFF)
    features = network.classifier.embed.output_shape[-1]

    def adam(steps: int) -> tf.keras.optimizers.Optimizer:
      return optimizers.stepped_adam(
        steps=steps,
        learning_rate=config.generator_rate * factor,
        milestones=tuple(config.generator_milestones),
        factor=config.generator_decay_factor,
        beta_1=0.5,
      )

    with strategy.scope():
      generator = feature_gan.build_generator(
        config.noise, task.classes, config.hidden, features
      )
      critic = feature_gan.build_critic(features, task.classes, config.hidden)
      old = None
      if self.folder.parts:
        old = self.network("generator")
        feature_gan.grow(old, generator)
        feature_gan.grow(self.network("critic"), critic)
      factor = old_factor(task.old_classes, len(task.new_labels))
      gan = feature_gan.FeatureGAN(
        generator,
        critic,
        adam(rounds),
        critic_steps=config.critic_steps,
        penalty=config.penalty,
        old_generator=old,
        distillation=config.generator_distillation * factor,
      )
      gan.compile(adam(rounds * config.critic_steps))
    return gan

  def _batches(
    self, task: Task, network: Network, rounds: range, share: stream.Share
  ) -> tf.data.Dataset:
    """Random features with noise, one batch for each step of the generator."""
    config = self.config.gfr
    features, labels = self._views(task, network)
    each = -(-config.generator_batch_size // share.replicas)
    count = config.critic_steps * each
    seed = stream.fold_in(self.config.seed, task.step, _GAN)

    def draw(number: tf.Tensor) -> tuple:
      noise, old_labels = _draw(
        count, config.noise, max(task.old_classes, 1), seed, number
      )
      seeds = _split(seed, number, 4)
      chosen = tf.random.stateless_uniform(
        [count], seeds[2], 0, len(labels), tf.int32
      )
      mix = tf.random.stateless_uniform([count, 1], seeds[3])
      return (
        tf.gather(features, chosen),
        tf.gather(labels, chosen),
        noise,
        mix,
        old_labels,
      )

    return (
      share.numbers(rounds)
      .map(draw, tf.data.AUTOTUNE)
      .prefetch(tf.data.AUTOTUNE)
    )

  def _views(
    self, task: Task, network: Network
  ) -> tuple[np.ndarray, np.ndarray]:
    """Features, float32 [n, d], and labels, int32 [n], of augmented images."""
    batches = task.new.training_batches(
      batch_size=self.config.eval_batch_size,
      epochs=range(self.config.gfr.views),
      seed=stream.fold_in(self.config.seed, task.step, _VIEWS),
      augment=augmentation_of(self.config),
    )
    images = batches.map(lambda images, labels: images)
    labels = [label for _, label in batches.as_numpy_iterator()]
    features = network.classifier.embed.predict(images, verbose=0)
    return features, np.concatenate(labels)


def _adam(config, schedule, steps: int, factor: float):
  """Adam with L2 decay; arguments as those of `classifier_training.sgd`."""
  return optimizers.stepped_adam(
    steps=steps * schedule.epochs,
    learning_rate=schedule.learning_rate * factor,
    milestones=tuple(schedule.milestones),
    factor=schedule.decay_factor,
    l2=schedule.weight_decay,
  )


def _extra_inputs(
  step: Step, batches: tf.data.Dataset, ids: tf.data.Dataset
) -> tf.data.Dataset:
  """Adds noise and old labels for as many generated features as images."""
  old = step.task.old_classes
  seed = stream.fold_in(step.config.seed, step.task.step, _REPLAY)

  def add(number: tf.Tensor, batch: tuple) -> tuple:
    count = tf.shape(batch[1])[0]
    return *batch, *_draw(count, step.section.noise, old, seed, number)

  return tf.data.Dataset.zip((ids, batches)).map(add, tf.data.AUTOTUNE)


def _objective(step: Step, classifier: classifiers.Classifier):
  """Feature distillation, new images and generated features."""
  if step.old is None:
    return None
  student = classifier.up_to("features", "logits")
  head = classifier.get_layer("logits")
  old_embed = step.old.classifier.embed
  with step.strategy.scope():
    generator = step.memory.network("generator")
  old_classes = step.task.old_classes
  factor = old_factor(old_classes, len(step.task.new_labels))

  def objective(images, labels, noise, old_labels) -> tuple:
    # Batch normalisation keeps the statistics of the first step.
    features, logits = student(images, training=False)
    kept = feature_distance(features, old_embed(images, training=False))
    one_hot = tf.one_hot(old_labels, old_classes)
    replayed = tf.stop_gradient(generator([noise, one_hot], training=False))
    new = losses.cross_entropy(labels, logits)
    old = losses.cross_entropy(old_labels, head(replayed))
    parts = {
      "feature_distance": factor * kept,
      "cross_entropy": new / (factor + 1),
      "replayed": factor * old / (factor + 1),
    }
    return parts, logits

  return objective, ("feature_distance", "cross_entropy", "replayed")


# Liu et al. (2020), generative feature replay. After the first step batch
# normalisation is frozen and the loss is r |f - f_old|_2 + [CE(new images)
# + r CE(generated features)] / (r + 1), with as many generated features as
# images, uniform over the old classes. A generator of features then learns the
# new classes, while its output for old ones is distilled from the generator
# before. The head grows with the classes, unlike in the released code.
GFR = Method(
  memory=FeatureMemory,
  start=from_last,
  objective=_objective,
  optimizer=_adam,
  extra_inputs=_extra_inputs,
  needs_old_network=True,
  own_schedule=True,
  has_budget=False,
  frozen_gradients=True,
)


def _split(seed: tf.Tensor, step: tf.Tensor, count: int) -> tf.Tensor:
  """Seeds of one step, int32 [count, 2]."""
  folded = tf.random.experimental.stateless_fold_in(seed, step)
  return tf.random.experimental.stateless_split(folded, count)


def _draw(
  count: tf.Tensor | int, noise: int, old: int, seed: tf.Tensor, step: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Noise, float32 [count, noise], and labels of old classes, int32 [count]."""
  seeds = _split(seed, step, 4)
  return (
    tf.random.stateless_normal([count, noise], seeds[0]),
    tf.random.stateless_uniform([count], seeds[1], 0, old, tf.int32),
  )
