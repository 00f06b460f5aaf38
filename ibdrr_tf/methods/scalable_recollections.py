"""Scalable Recollections: a discrete VAE, and a buffer of its codes."""

import math

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.er import draw_replayed, er_objective
from ibdrr_tf.methods.method import Method, from_last
from ibdrr_tf.replay import autoencoders
from ibdrr_tf.replay.autoencoders import scaled, to_pixels
from ibdrr_tf.replay.coded_memory import (
  CodedMemory,
  pack_codes,
  unpack_codes,
)

__all__ = [
  "SCALABLE_RECOLLECTIONS",
  "DiscreteVAE",
  "RecollectionMemory",
  "divergence",
  "gumbel_softmax",
]


def gumbel_softmax(
  logits: tf.Tensor, key: tf.Tensor, temperature: float
) -> tf.Tensor:
  """Draws categories; a gradient passes as if they were shares.

  Straight-through: forward, the category with the largest logit + Gumbel noise,
  one-hot; backward, softmax of the same sum divided by the temperature (Jang et
  al., 2017).

  Args:
    logits: float32 [..., categories].
    key: int32 [2].
    temperature: of the softmax.
  """
  uniform = tf.random.stateless_uniform(tf.shape(logits), key, 1e-9, 1.0)
  noisy = logits - tf.math.log(-tf.math.log(uniform))
  shares = tf.nn.softmax(noisy / temperature)
  drawn = tf.one_hot(tf.argmax(noisy, axis=-1), logits.shape[-1])
  return shares + tf.stop_gradient(drawn - shares)


def divergence(logits: tf.Tensor) -> tf.Tensor:
  """KL(softmax(logits) || uniform), summed over all but the first axis: [b]."""
  log_shares = tf.nn.log_softmax(logits)
  terms = tf.exp(log_shares) * (log_shares + math.log(logits.shape[-1]))
  return tf.reduce_sum(terms, axis=list(range(1, len(logits.shape))))


class DiscreteVAE(autoencoders.Coder):
  """A variational autoencoder with categorical latent variables.

      image ─► convolutions ─► logits ─► categories ─► convolutions ─► image

  Args:
    image_shape: (height, width, 3).
    widths: channels of each convolution of stride 2.
    variables: at each place of the grid.
    categories: of each variable.
    temperature: of the Gumbel-softmax.
    variance: of a pixel around its reconstruction, on a scale from -1 to 1.
  """

  PARTS = ("reconstruction", "divergence")

  def __init__(
    self,
    image_shape: tuple[int, int, int],
    widths: tuple[int, ...],
    variables: int,
    categories: int,
    temperature: float,
    variance: float,
  ):
    super().__init__()
    channels = variables * categories
    self.encoder = autoencoders.build_encoder(image_shape, widths, channels)
    self.decoder = autoencoders.build_decoder(image_shape, widths, channels)
    self.grid = (*autoencoders.grid_of(image_shape, len(widths)), variables)
    self._categories, self._temperature = categories, temperature
    self._variance = variance

  def parts(self, images, labels, key) -> dict[str, tf.Tensor]:
    """Reconstruction error and divergence, for each number of an image."""
    images = scaled(images)
    logits = self._logits(images)
    drawn = gumbel_softmax(logits, key, self._temperature)
    error = tf.square(self._decoded(drawn) - images)
    error = tf.reduce_sum(error, axis=[1, 2, 3]) / (2.0 * self._variance)
    numbers = float(np.prod(images.shape[1:]))
    return {
      "reconstruction": losses.batch_mean(error) / numbers,
      "divergence": losses.batch_mean(divergence(logits)) / numbers,
    }

  def codes(self, images: tf.Tensor) -> tf.Tensor:
    """The likeliest categories: int32 [b, codes]."""
    best = tf.argmax(self._logits(scaled(images)), -1, tf.int32)
    return tf.reshape(best, [-1, int(np.prod(self.grid))])

  def images(self, codes: tf.Tensor) -> tf.Tensor:
    """What the decoder makes of codes, int32 [b, codes]: uint8 images."""
    places = tf.reshape(codes, [-1, *self.grid])
    return to_pixels(self._decoded(tf.one_hot(places, self._categories)))

  def _logits(self, images: tf.Tensor) -> tf.Tensor:
    """float32 [b, h', w', variables, categories]."""
    logits = self.encoder(images)
    return tf.reshape(logits, [-1, *self.grid, self._categories])

  def _decoded(self, shares: tf.Tensor) -> tf.Tensor:
    channels = self.grid[2] * self._categories
    return self.decoder(tf.reshape(shares, [-1, *self.grid[:2], channels]))


class RecollectionMemory(CodedMemory):
  """Codes of a discrete VAE that learns from its own reconstructions."""

  SECTION = "scalable_recollections"

  def build(self) -> DiscreteVAE:
    """A VAE with random weights."""
    config = self.section
    return DiscreteVAE(
      self.setting.image_shape,
      tuple(config.widths),
      config.variables,
      config.categories,
      config.temperature,
      config.variance,
    )

  @property
  def _bits(self) -> int:
    return max(1, math.ceil(math.log2(self.section.categories)))

  def encode(self, coder: DiscreteVAE, images: np.ndarray) -> list[bytes]:
    """The likeliest categories of each image."""
    return pack_codes(autoencoders.in_batches(coder.codes, images), self._bits)

  def decode(self, coder: DiscreteVAE, codes: list[bytes]) -> np.ndarray:
    """Images of categories."""
    count = int(np.prod(coder.grid))
    return autoencoders.in_batches(
      coder.images, unpack_codes(codes, self._bits, count)
    )


# Riemer et al. (2017; AAAI 2019). A buffer holds codes of a discrete VAE
# (Gumbel-softmax). The VAE learns online from new images and from what it
# decodes from its buffer; the classifier learns from new images and from as
# many decoded ones. Codes are not renewed, so that they drift as the decoder
# changes. The authors see every image once, and combine this with GEM or plain
# replay: this is plain replay. They have no public code; sizes of the VAE are
# ours. All images are kept, or as many as a byte budget holds.
SCALABLE_RECOLLECTIONS = Method(
  memory=RecollectionMemory,
  start=from_last,
  objective=er_objective,
  extra_inputs=draw_replayed,
)
