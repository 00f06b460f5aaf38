"""DGR: a generator replays images, and the old network labels them."""

from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.data.task import Task
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import autoencoders
from ibdrr_tf.replay.autoencoders import scaled, to_pixels
from ibdrr_tf.replay.memory import Embeds, Memory
from ibdrr_tf.replay.networks import read_network, write_network

__all__ = ["DGR", "GeneratorMemory", "ImageVAE", "divergence", "new_share"]

layers = tf.keras.layers

_NOISE = 14  # folded into the seed


def new_share(old_classes: int, classes: int) -> float:
  """The share of the new classes in the loss; a step has at least one."""
  return 1.0 - old_classes / max(classes, old_classes + 1)


def divergence(mean: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
  """KL(N(mean, variance) || N(0, 1)) of each row, float32 [b].

  Args:
    mean: float32 [b, d].
    log_variance: float32 [b, d].
  """
  terms = tf.square(mean) + tf.exp(log_variance) - 1.0 - log_variance
  return 0.5 * tf.reduce_sum(terms, axis=1)


class ImageVAE(autoencoders.Coder):
  """A variational autoencoder of images with a Gaussian latent vector.

      image ─► convolutions ─► mean, log variance ─► z ─► convolutions ─► image

  Args:
    image_shape: (height, width, 3).
    widths: channels of each convolution of stride 2.
    latent: size of z.
    variance: of a pixel around its reconstruction, on a scale from -1 to 1.
  """

  PARTS = ("new", "replayed")

  def __init__(
    self,
    image_shape: tuple[int, int, int],
    widths: tuple[int, ...],
    latent: int,
    variance: float,
  ):
    super().__init__()
    height, width = autoencoders.grid_of(image_shape, len(widths))
    features = autoencoders.build_encoder(image_shape, widths, widths[-1])
    x = layers.Flatten()(layers.ReLU()(features.output))
    self.encoder = tf.keras.Model(features.input, layers.Dense(2 * latent)(x))
    z = tf.keras.Input([latent])
    x = layers.Dense(height * width * widths[-1], activation="relu")(z)
    x = layers.Reshape([height, width, widths[-1]])(x)
    images = autoencoders.build_decoder(image_shape, widths, widths[-1])(x)
    self.decoder = tf.keras.Model(z, images)
    self._latent, self._variance = latent, variance
    self._old, self._share = None, 1.0

  def replay(self, old: "ImageVAE", share: float) -> None:
    """Also learns what another one generates.

    Args:
      old: whose images are learned.
      share: of the new images in the loss.
    """
    # In a closure, because it is no part of what a checkpoint keeps.
    self._old, self._share = lambda z: old.generate(z), share

  def generate(self, z: tf.Tensor) -> tf.Tensor:
    """Images of latent vectors, float32 [b, latent]: uint8 [b, h, w, 3]."""
    return to_pixels(self.decoder(z, training=False))

  def parts(self, images, labels, key) -> dict[str, tf.Tensor]:
    """The negative evidence lower bounds of new and of generated images."""
    keys = tf.random.experimental.stateless_split(key, 3)
    loss = self._bound(images, keys[0])
    if self._old is None:
      return {"new": loss, "replayed": tf.zeros([])}
    z = tf.random.stateless_normal([tf.shape(images)[0], self._latent], keys[1])
    replayed = self._bound(self._old(z), keys[2])
    share = self._share
    return {"new": share * loss, "replayed": (1.0 - share) * replayed}

  def _bound(self, images: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
    """A mean over the batch, for each number of an image."""
    images = scaled(images)
    mean, log_variance = tf.split(self.encoder(images), 2, axis=1)
    noise = tf.random.stateless_normal(tf.shape(mean), key)
    back = self.decoder(mean + tf.exp(0.5 * log_variance) * noise)
    error = tf.reduce_sum(tf.square(back - images), axis=[1, 2, 3])
    bound = error / (2.0 * self._variance) + divergence(mean, log_variance)
    return losses.batch_mean(bound) / float(np.prod(images.shape[1:]))


class GeneratorMemory(Memory):
  """A generator of images, which learns each step's classes."""

  def examples(self, task: Task) -> Examples:
    """The new images."""
    return task.new

  def generator(self) -> ImageVAE:
    """The kept generator."""
    vae = self._build()
    (name,) = self._part["files"]
    read_network(self.folder.path / name, vae)
    return vae

  def add(self, task: Task, network: Embeds) -> None:
    """Trains the generator on the new images and on its own."""
    # The same first weights in every process.
    seed = stream.fold_in(self.config.seed, task.step, _NOISE)
    set_random_seed(int(seed[0].numpy()) & 0x7FFFFFFF)
    with self.setting.team.strategy.scope():
      vae = self._build()
      if self._part["files"]:
        old = self.generator()
        vae.set_weights(old.get_weights())
        vae.replay(old, new_share(task.old_classes, task.classes))
    autoencoders.fit_coder(
      vae,
      task.new,
      section=self.config.dgr,
      config=self.config,
      state=self.folder.path.parent,
      step=task.step,
    )
    path = self.folder.new_file("generator", task.step, "npz")
    weights = vae.get_weights()
    self.folder.team.on_chief(lambda: write_network(path, weights))
    part = {"files": {path.name: path.stat().st_size}}
    self.folder.write(task.step, {"generator": part})

  def forget(self, step: int, label: int) -> None:
    """Refuses: the generator does not know which images are of which class."""
    raise UserError(
      "the method dgr cannot forget a class, because its generator has no "
      "classes: start another state without it."
    )

  def stored_bytes(self) -> dict[str, int]:
    """Encoder and decoder; no images."""
    size = sum(self._part["files"].values())
    return {**super().stored_bytes(), "other_models": size}

  @property
  def _part(self) -> dict[str, Any]:
    return self.folder.part("generator", {"files": {}})

  def _build(self) -> ImageVAE:
    config = self.config.dgr
    return ImageVAE(
      self.setting.image_shape,
      tuple(config.widths),
      config.latent,
      config.variance,
    )


def _extra_inputs(
  step: Step, batches: tf.data.Dataset, ids: tf.data.Dataset
) -> tf.data.Dataset:
  """Adds latent vectors of as many generated images as a batch has."""
  seed = stream.fold_in(step.config.seed, step.task.step, _NOISE)

  def add(number: tf.Tensor, batch: tuple) -> tuple:
    key = tf.random.experimental.stateless_fold_in(seed, number)
    shape = [tf.shape(batch[1])[0], step.section.latent]
    return *batch, tf.random.stateless_normal(shape, key)

  return tf.data.Dataset.zip((ids, batches)).map(add, tf.data.AUTOTUNE)


def _objective(step: Step, classifier: classifiers.Classifier):
  """New images and generated ones, weighed by the number of classes."""
  if step.old is None:
    return None
  teacher = step.old.classifier
  with step.strategy.scope():
    generator = step.memory.generator()
  share = new_share(step.task.old_classes, step.task.classes)

  def objective(images, labels, noise) -> tuple:
    replayed = generator.generate(noise)
    old_labels = tf.argmax(teacher(replayed, training=False), axis=1)
    both = tf.concat([images, replayed], axis=0)
    logits = classifier(both, training=True)
    size = tf.shape(labels)[0]
    new = losses.cross_entropy(labels, logits[:size])
    old = losses.cross_entropy(old_labels, logits[size:])
    parts = {"cross_entropy": share * new, "replayed": (1.0 - share) * old}
    return parts, logits[:size]

  return objective, ("cross_entropy", "replayed")


# Shin et al. (2017), deep generative replay. A *scholar* is a generator and a
# solver. The solver learns from new images, and from as many that the old
# generator makes and the old solver labels; both losses are weighed by r and
# 1 - r, where r is the share of the new classes (the paper: of the new task).
# The generator then learns from new images and from its own, likewise. The
# paper's generator is a WGAN-GP; this one is a variational autoencoder, as in
# van de Ven's code. It keeps no images, so there is no byte budget to hold.
DGR = Method(
  memory=GeneratorMemory,
  start=from_last,
  objective=_objective,
  extra_inputs=_extra_inputs,
  needs_old_network=True,
  has_budget=False,
)
