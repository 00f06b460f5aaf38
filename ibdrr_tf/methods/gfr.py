"""GFR: features of old classes from a generator, and no images at all."""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ibdrr_tf import training
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.classifiers import optimizer as optimizers
from ibdrr_tf.data import stream
from ibdrr_tf.methods.distilling import Distilling
from ibdrr_tf.methods.finetune import Finetune
from ibdrr_tf.replay import feature_gan
from ibdrr_tf.replay.networks import NetworkStore

__all__ = ["GFR", "feature_distance", "old_factor"]

# Folded into the seed; base.py has 0 and 1, mnemonics.py 2.
_REPLAY, _GAN, _VIEWS, _GAN_WEIGHTS = range(3, 7)
# How often the state of the generator's training is kept.
_CHECKPOINTS = 20


def feature_distance(features: tf.Tensor, old_features: tf.Tensor) -> tf.Tensor:
  """|features - old features|_2 of a whole batch [b, d], over all replicas.

  One norm for all of it, as `torch.dist` gives, not a mean of norms.
  """
  difference = features - tf.stop_gradient(old_features)
  squares = tf.distribute.get_replica_context().all_reduce(
    tf.distribute.ReduceOp.SUM, tf.reduce_sum(tf.square(difference))
  )
  # A phase begins with equal features, where the root has no slope.
  return tf.sqrt(tf.maximum(squares, 1e-12))


def old_factor(base_classes: int, new_classes: int, phase: int) -> int:
  """How many phases' worth of classes are old: r of the loss."""
  return base_classes // new_classes + phase - 1


class GFR(Distilling, Finetune):
  """Liu et al. (2020), generative feature replay.

  After the base phase batch normalisation is frozen and the loss is
  r |f - f_old|_2 + [CE(new images) + r CE(generated features)] / (r + 1), with
  as many generated features as images, uniform over the old classes.
  A generator of features then learns the new classes, while its output for old
  ones is distilled from the generator before. As in the released code the
  critic goes on from the last phase too, hence its copy is kept and counted,
  and there is no generator training after the last phase.

  Unlike the released code the head grows with the classes; a generator's step
  draws its images at random instead of in epochs, of which it makes as many
  as configured; and features are those of `gfr.views` augmented views of the
  data, computed once, instead of a new view for each epoch.
  """

  frozen_gradients = True

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    memory = self.workdir / "memory"
    self._generators = NetworkStore(memory, "generator")
    self._critics = NetworkStore(memory, "critic")

  def optimizer(self, phase: int, steps: int) -> tf.keras.optimizers.Optimizer:
    """Adam with L2 decay."""
    schedule = self.schedule(phase)
    return optimizers.stepped_adam(
      steps=steps * schedule.epochs,
      learning_rate=schedule.learning_rate * self.rate_factor,
      milestones=tuple(schedule.milestones),
      factor=schedule.decay_factor,
      l2=schedule.weight_decay,
    )

  def accompany(
    self, phase: int, batches: tf.data.Dataset, numbers: tf.data.Dataset
  ) -> tf.data.Dataset:
    """Adds noise and old labels for as many generated features as images."""
    if not phase:
      return batches
    old = self.scenario.classes_seen(phase - 1)
    seed = stream.fold_in(self.config.seed, phase, _REPLAY)

    def add(number: tf.Tensor, batch: tuple) -> tuple:
      count = tf.shape(batch[1])[0]
      return *batch, *_draw(count, self.section.noise, old, seed, number)

    return tf.data.Dataset.zip((numbers, batches)).map(add, tf.data.AUTOTUNE)

  def objective(
    self, phase: int, classifier: classifiers.Classifier
  ) -> tuple[classifiers.Objective, Sequence[str]] | None:
    """Feature distillation, new images and generated features."""
    if not phase:
      return None
    student = classifier.up_to("features", "logits")
    head = classifier.get_layer("logits")
    old_embed = self.teacher(phase).embed
    with self.strategy.scope():
      generator = self._build_generator()
    self._generators.read(phase - 1, generator)
    factor = self._old_factor(phase)

    def objective(images, labels, noise, old_labels) -> tuple:
      # Batch normalisation keeps the statistics of the base phase.
      features, logits = student(images, training=False)
      kept = feature_distance(features, old_embed(images, training=False))
      one_hot = tf.one_hot(old_labels, len(self.scenario.order))
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

  def learn(self, phase: int) -> float:
    """Trains the classifier, then the generator."""
    seconds = super().learn(phase)
    if phase != self.scenario.phases[-1]:
      seconds += self._learn_features(phase)
    return seconds

  def remember(self, phase: int) -> None:
    """Keeps network, generator and critic."""
    super().remember(phase)
    if phase != self.scenario.phases[-1]:
      self.keep_network(self._critics, phase, self._gan.critic)
      self.keep_network(self._generators, phase, self._gan.generator)

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """The old network, generator and critic; no images."""
    stored = super().stored_bytes(phase)
    stored["other_models"] += (
      self._generators.stored_bytes + self._critics.stored_bytes
    )
    return stored

  def _learn_features(self, phase: int) -> float:
    """Trains the generator on the features of a phase; returns seconds."""
    config = self.section
    new = self.new_examples(phase)
    steps = config.generator_epochs * new.steps(config.generator_batch_size)
    rounds = max(1, steps // config.critic_steps)
    per_checkpoint = -(-rounds // _CHECKPOINTS)
    job = training.Fit(
      epochs=-(-rounds // per_checkpoint),
      steps_per_epoch=per_checkpoint,
      batches=lambda epochs, share: self._feature_batches(
        phase,
        range(epochs.start * per_checkpoint, epochs.stop * per_checkpoint),
        share,
      ),
      # Goes with the phase's own checkpoint when that is removed.
      checkpoints=self._folder("checkpoints", phase) / "generator",
      tensorboard=self._folder("tensorboard", phase) / "generator",
      title=f"generator, phase {phase}",
    )
    # The critic is kept before the generator; a run may be killed in between.
    finished = self._critics.holds(phase)
    self._gan = self._build_gan(phase, rounds, untaught=finished)
    if finished:
      return training.restore_finished(self._gan, job)
    return training.fit(self._gan, job)

  def _build_gan(
    self, phase: int, rounds: int, *, untaught: bool
  ) -> feature_gan.FeatureGAN:
    """Generator and critic, compiled.

    Args:
      phase: they go on from those of the phase before.
      rounds: steps of the generator.
      untaught: leaves that out, where training is over and they are gone.
    """
    config = self.section
    seed = stream.fold_in(self.config.seed, phase, _GAN_WEIGHTS)
    tf.keras.utils.set_random_seed(int(seed[0].numpy()) & 0x7FFFFFFF)

    def adam(steps: int) -> tf.keras.optimizers.Optimizer:
      return optimizers.stepped_adam(
        steps=steps,
        learning_rate=config.generator_rate * self.rate_factor,
        milestones=tuple(config.generator_milestones),
        factor=config.generator_decay_factor,
        beta_1=0.5,
      )

    with self.strategy.scope():
      generator = self._build_generator()
      critic = feature_gan.build_critic(
        generator.output_shape[-1], len(self.scenario.order), config.hidden
      )
      old = None
      if phase and not untaught:
        old = self._build_generator()
        for network in (old, generator):
          self._generators.read(phase - 1, network)
        self._critics.read(phase - 1, critic)
      gan = feature_gan.FeatureGAN(
        generator,
        critic,
        adam(rounds),
        critic_steps=config.critic_steps,
        penalty=config.penalty,
        old_generator=old,
        distillation=config.generator_distillation * self._old_factor(phase),
      )
      gan.compile(adam(rounds * config.critic_steps))
    return gan

  def _build_generator(self) -> tf.keras.Model:
    config = self.section
    return feature_gan.build_generator(
      config.noise,
      len(self.scenario.order),
      config.hidden,
      self.classifier.embed.output_shape[-1],
    )

  def _feature_batches(
    self, phase: int, rounds: range, share: stream.Share
  ) -> tf.data.Dataset:
    """Random features with noise, one batch for each step of the generator."""
    config = self.section
    features, labels = self._views(phase)
    each = -(-config.generator_batch_size // share.replicas)
    count = config.critic_steps * each
    old = self.scenario.classes_seen(phase - 1) if phase else 1
    seed = stream.fold_in(self.config.seed, phase, _GAN)

    def draw(number: tf.Tensor) -> tuple:
      noise, old_labels = _draw(count, config.noise, old, seed, number)
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

  def _views(self, phase: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, float32 [n, d], and labels, int32 [n], of augmented images."""
    batches = self.new_examples(phase).training_batches(
      batch_size=self.config.eval_batch_size,
      epochs=range(self.section.views),
      seed=stream.fold_in(self.config.seed, phase, _VIEWS),
      padding=self.config.classifier.padding,
    )
    images = batches.map(lambda images, labels: images)
    labels = [label for _, label in batches.as_numpy_iterator()]
    features = self.classifier.embed.predict(images, verbose=0)
    return features, np.concatenate(labels)

  def _old_factor(self, phase: int) -> int:
    new = len(self.scenario.new_labels(phase))
    return old_factor(self.scenario.boundaries[0], new, phase)

  def _folder(self, name: str, phase: int):
    return self.workdir / name / f"phase-{phase:03d}"


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
