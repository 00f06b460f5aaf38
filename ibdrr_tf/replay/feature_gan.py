"""A generator of features: what GFR remembers instead of images.

A conditional Wasserstein GAN with gradient penalty over features of the
classifier, which are short vectors, so that two small perceptrons suffice.
"""

import numpy as np
import tensorflow as tf

__all__ = [
  "FeatureGAN",
  "build_critic",
  "build_generator",
  "gradient_penalty",
  "grow",
  "without_class",
]

layers = tf.keras.layers


def build_generator(
  noise: int, classes: int, hidden: int, features: int
) -> tf.keras.Model:
  """(noise [b, noise], one-hot labels [b, classes]) -> features [b, features].

  The last ReLU is that of the classifier's own features.
  """
  inputs = [tf.keras.Input([noise]), tf.keras.Input([classes])]
  x = layers.Concatenate()(inputs)
  for _ in range(2):
    x = layers.LeakyReLU(0.2)(_dense(hidden)(x))
  return tf.keras.Model(inputs, layers.ReLU()(_dense(features)(x)))


def build_critic(features: int, classes: int, hidden: int) -> tf.keras.Model:
  """(features [b, features], one-hot labels [b, classes]) -> score [b].

  The label enters by projection (Miyato and Koyama, 2018).
  """
  inputs = [tf.keras.Input([features]), tf.keras.Input([classes])]
  x = inputs[0]
  for _ in range(2):
    x = layers.LeakyReLU(0.2)(_dense(hidden)(x))
  # PyTorch's default for a layer without bias: uniform within classes ** -.5.
  uniform = tf.keras.initializers.RandomUniform(-(classes**-0.5), classes**-0.5)
  label = layers.Dense(hidden, use_bias=False, kernel_initializer=uniform)
  score = layers.Dot(1)([label(inputs[1]), x]) + _dense(1)(x)
  return tf.keras.Model(inputs, layers.Reshape([])(score))


def grow(old: tf.keras.Model, new: tf.keras.Model) -> None:
  """Copies a generator or critic into one with inputs for more classes.

  Inputs of new classes come last and keep their random weights.
  """
  weights = []
  for before, value in zip(old.get_weights(), new.get_weights(), strict=True):
    value[: len(before)] = before
    weights.append(value)
  new.set_weights(weights)


def without_class(model: tf.keras.Model, label: int) -> list[np.ndarray]:
  """Weights of a generator or critic whose inputs lack a class."""
  inputs = [shape[-1] for shape in model.input_shape]
  rows, weights = None, []
  for layer in model.layers:
    if isinstance(layer, layers.Concatenate):
      rows = sum(inputs)  # A generator: noise comes before the classes.
  for layer in model.layers:
    values = layer.get_weights()
    if rows is not None and values and len(values[0]) == rows:
      values[0] = np.delete(values[0], inputs[0] + label, axis=0)
      rows = -1  # The first layer only.
    elif rows is None and len(values) == 1:  # A critic's layer without bias.
      values[0] = np.delete(values[0], label, axis=0)
    weights += values
  return weights


def _dense(size: int) -> layers.Layer:
  return layers.Dense(
    size, kernel_initializer=tf.keras.initializers.RandomNormal(stddev=0.02)
  )


def gradient_penalty(
  critic: tf.keras.Model,
  real: tf.Tensor,
  fake: tf.Tensor,
  labels: tf.Tensor,
  mix: tf.Tensor,
) -> tf.Tensor:
  """(|gradient of the score| - 1)^2 between real and fake (Gulrajani, 2017).

  Args:
    critic: of (features, labels).
    real: float32 [b, d].
    fake: float32 [b, d].
    labels: one-hot, float32 [b, classes].
    mix: the share of the real ones in the points looked at, float32 [b, 1].

  Returns:
    The mean over the batch.
  """
  points = mix * real + (1.0 - mix) * fake
  with tf.GradientTape() as tape:
    tape.watch(points)
    scores = critic([points, labels], training=True)
  slopes = tape.gradient(scores, points)
  # The square root has no slope at zero.
  squares = tf.reduce_sum(tf.square(slopes), axis=1)
  lengths = tf.sqrt(tf.maximum(squares, 1e-12))
  return tf.reduce_mean(tf.square(lengths - 1.0))


class FeatureGAN(tf.keras.Model):
  """Trains a generator against a critic; one step has several of the critic.

  A batch is (features, labels, noise, mix, old labels), each
  [critic steps * b, ...] so that it can be divided among replicas. Noise and
  all else that is random comes with the batch: training is stateless.

  Args:
    generator: see `build_generator`.
    critic: see `build_critic`.
    generator_optimizer: the critic's is given to `compile`.
    critic_steps: of the critic for each of the generator.
    penalty: weight of the gradient penalty.
    old_generator: whose features of old classes are to stay; or None.
    distillation: weight of the sum of squared differences from them.
  """

  def __init__(
    self,
    generator: tf.keras.Model,
    critic: tf.keras.Model,
    generator_optimizer: tf.keras.optimizers.Optimizer,
    *,
    critic_steps: int,
    penalty: float,
    old_generator: tf.keras.Model | None = None,
    distillation: float = 0.0,
  ):
    super().__init__()
    self.generator = generator
    self.critic = critic
    self.generator_optimizer = generator_optimizer
    self.generator_optimizer.build(generator.trainable_variables)
    self._critic_steps = critic_steps
    self._penalty = penalty
    self._distillation = distillation
    # In a closure, because it is no part of what a checkpoint keeps.
    self._generate_old = None
    if old_generator is not None:
      known = old_generator.input_shape[1][-1]
      self._generate_old = lambda noise, labels: old_generator(
        [noise, labels[:, :known]]
      )
    self._classes = generator.input_shape[1][-1]
    self._means = {
      name: tf.keras.metrics.Mean(name)
      for name in ("loss", "generator", "distillation")
    }

  @property
  def trainable_variables(self) -> list[tf.Variable]:
    """What `compile`'s optimiser moves: the critic."""
    return self.critic.trainable_variables

  def train_step(self, data: tuple) -> dict[str, tf.Tensor]:
    """A few steps of the critic, then one of the generator."""
    parts = [tf.split(tensor, self._critic_steps) for tensor in data]
    batches = list(zip(*parts, strict=True))
    for batch in batches:
      self._train_critic(*batch[:4])
    self._train_generator(*batches[-1])
    return {name: mean.result() for name, mean in self._means.items()}

  def _train_critic(self, real, labels, noise, mix) -> None:
    labels = tf.one_hot(labels, self._classes)
    fake = self.generator([noise, labels], training=False)
    with tf.GradientTape() as tape:
      scores = self.critic(
        [tf.concat([fake, real], 0), tf.tile(labels, [2, 1])]
      )
      fakes, reals = tf.split(scores, 2)
      slope = gradient_penalty(self.critic, real, fake, labels, mix)
      loss = tf.reduce_mean(fakes) - tf.reduce_mean(reals)
      loss += self._penalty * slope
      share = loss / _replicas()
    self.optimizer.minimize(share, self.critic.trainable_variables, tape=tape)
    self._means["loss"].update_state(loss)

  def _train_generator(self, real, labels, noise, mix, old_labels) -> None:
    labels = tf.one_hot(labels, self._classes)
    with tf.GradientTape() as tape:
      fake = self.generator([noise, labels], training=True)
      loss = -tf.reduce_mean(self.critic([fake, labels]))
      share = loss / _replicas()
      kept = tf.zeros([])
      if self._generate_old is not None:
        old_labels = tf.one_hot(old_labels, self._classes)
        old = self._generate_old(noise, old_labels)
        new = self.generator([noise, old_labels], training=True)
        # A sum over the batch: over replicas it adds up by itself.
        kept = self._distillation * tf.reduce_sum(tf.square(new - old))
        share += kept
    variables = self.generator.trainable_variables
    self.generator_optimizer.minimize(share, variables, tape=tape)
    self._means["generator"].update_state(loss)
    self._means["distillation"].update_state(kept)


def _replicas() -> int:
  return tf.distribute.get_strategy().num_replicas_in_sync
