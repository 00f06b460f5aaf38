"""AQM: stacked quantisation modules, and each image as coarse as it bears."""

import dataclasses
import math
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import losses
from ibdrr_tf.codec.lossy.quantizer import VectorQuantizer
from ibdrr_tf.methods.er import draw_replayed, er_objective
from ibdrr_tf.methods.method import Method, from_last
from ibdrr_tf.replay import autoencoders, image_formats
from ibdrr_tf.replay.autoencoders import scaled, to_pixels
from ibdrr_tf.replay.coded_memory import (
  CodedMemory,
  pack_codes,
  unpack_codes,
)
from ibdrr_tf.replay.image_store import EncodedImages

__all__ = ["AQM", "ModuleMemory", "Modules", "coarsest"]


def coarsest(errors: np.ndarray, limit: float) -> np.ndarray:
  """The most compressed level at which each image is good enough.

  Args:
    errors: float [n, levels], the most compressed level last.
    limit: the largest error that is good enough.

  Returns:
    int [n]: 1 for the first level, and so on; 0 if no level will do.
  """
  fits = errors <= limit
  last = errors.shape[1] - np.argmax(fits[:, ::-1], axis=1)
  return np.where(fits.any(axis=1), last, 0)


class Modules(autoencoders.Coder):
  """VQ-VAEs on top of each other.

      image ─► encoder 1 ─► features ─► encoder 2 ─► features
                               │                        │
                            codes 1                  codes 2
                               ▼                        ▼
      image ◄─ decoder 1 ◄─ features ◄─── decoder 2 ◄─ features

  Each halves the resolution and learns to give back its own input alone: no
  gradient passes from one to another.

  Args:
    image_shape: (height, width, 3).
    widths: channels of the features of each module.
    entries: of each codebook, a power of two.
    depths: codebooks of each module; each codes what the last one left.
    frozen: which codebooks do not learn any more.
    commitment: weight of the commitment loss.
    seed: of the codebooks.
  """

  PARTS = ("reconstruction", "commitment")

  def __init__(
    self,
    image_shape: tuple[int, int, int],
    widths: tuple[int, ...],
    entries: int,
    depths: tuple[int, ...],
    frozen: tuple[bool, ...],
    commitment: float,
    seed: int,
  ):
    super().__init__()
    self._frozen, self._commitment = frozen, commitment
    self.encoders, self.decoders, self.quantizers = [], [], []
    shape = image_shape
    for width, depth in zip(widths, depths, strict=True):
      self.encoders.append(autoencoders.build_encoder(shape, (width,), width))
      self.decoders.append(autoencoders.build_decoder(shape, (width,), width))
      # A code that is restarted would mean something else in old images.
      quantizer = VectorQuantizer(
        entries, width, depth, restart_below=0.0, seed=seed
      )
      shape = (*autoencoders.grid_of(shape, 1), width)
      quantizer.build(tf.TensorShape([None, *shape]))
      self.quantizers.append(quantizer)

  @property
  def levels(self) -> int:
    """Number of modules."""
    return len(self.encoders)

  def parts(self, images, labels, key) -> dict[str, tf.Tensor]:
    """Errors of all modules, each of its own input."""
    x, errors, commitments = scaled(images), [], []
    for k in range(self.levels):
      features = self.encoders[k](x)
      found = self.quantizers[k](features, training=not self._frozen[k])
      # A codebook that does not learn lets gradients pass as well.
      codes = features + tf.stop_gradient(found.quantized - features)
      error = tf.square(self.decoders[k](codes) - x)
      errors.append(tf.reduce_mean(error, axis=[1, 2, 3]))
      commitments.append(found.commitment_loss)
      x = tf.stop_gradient(features)
    return {
      "reconstruction": losses.batch_mean(tf.add_n(errors)),
      "commitment": self._commitment * losses.batch_mean(tf.add_n(commitments)),
    }

  def codes(self, images: tf.Tensor, level: int) -> tf.Tensor:
    """Codes of a level, int32 [b, h', w', depth]; the first level is 1."""
    x = scaled(images)
    for k in range(level):
      x = self.encoders[k](x)
    return self.quantizers[level - 1](x).indices

  def images(self, codes: tf.Tensor, level: int) -> tf.Tensor:
    """Images of the codes of a level: uint8 [b, h, w, 3]."""
    x = self.quantizers[level - 1].lookup(codes)
    for k in reversed(range(level)):
      x = self.decoders[k](x)
    return to_pixels(x)


class ModuleMemory(CodedMemory):
  """Images at the most compressed level whose error is small enough.

  The first byte of an image is its level. Images for which no level will do
  are kept without loss, at level 0, and tried again after each step.
  """

  SECTION = "aqm"

  def build(self) -> Modules:
    """Modules with random weights; codebooks frozen as the manifest says."""
    config = self.section
    return Modules(
      self.setting.image_shape,
      tuple(config.widths),
      config.entries,
      tuple(config.depths),
      tuple(self._part["frozen"]),
      config.commitment,
      self.config.seed,
    )

  def encode(self, coder: Modules, images: np.ndarray) -> list[bytes]:
    """Each image at the level that it bears."""
    levels = coarsest(self._errors(coder, images), self.section.error)
    result: list[bytes] = [b""] * len(images)
    for level in np.unique(levels):
      places = np.flatnonzero(levels == level)
      if level:
        codes = autoencoders.in_batches(
          lambda x, k=int(level): coder.codes(x, k), images[places]
        )
        strings = pack_codes(codes.reshape(len(codes), -1), self._bits)
      else:
        strings = image_formats.encode(images[places], "lossless")
      for place, string in zip(places, strings, strict=True):
        result[place] = bytes([level]) + string
    return result

  def decode(self, coder: Modules, codes: list[bytes]) -> np.ndarray:
    """Images of all levels."""
    shape = self.setting.image_shape
    images = np.zeros([len(codes), *shape], np.uint8)
    levels = np.array([string[0] for string in codes], int)
    for level in np.unique(levels):
      places = np.flatnonzero(levels == level)
      strings = [codes[place][1:] for place in places]
      if not level:
        images[places] = image_formats.decode(strings, "lossless", shape)
        continue
      grid = autoencoders.grid_of(shape, int(level))
      grid = (*grid, self.section.depths[level - 1])
      numbers = unpack_codes(strings, self._bits, int(np.prod(grid)))
      images[places] = autoencoders.in_batches(
        lambda x, k=int(level): coder.images(x, k),
        numbers.reshape(-1, *grid),
      )
    return images

  def levels(self) -> np.ndarray:
    """The level of each kept image, int [n]."""
    strings = self.exemplars.store.read().images
    return np.array([string[0] for string in strings], int)

  @property
  def _bits(self) -> int:
    return max(1, math.ceil(math.log2(self.section.entries)))

  @property
  def _part(self) -> dict[str, Any]:
    nothing = {"files": {}, "frozen": [False] * len(self.section.widths)}
    return self.folder.part("coder", nothing)

  def _errors(self, coder: Modules, images: np.ndarray) -> np.ndarray:
    """Mean squared errors on a scale from -1 to 1: float [n, levels]."""

    def errors(x: tf.Tensor) -> tf.Tensor:
      back = [
        scaled(coder.images(coder.codes(x, k), k))
        for k in range(1, coder.levels + 1)
      ]
      squares = tf.square(tf.stack(back, axis=1) - scaled(x)[:, tf.newaxis])
      return tf.reduce_mean(squares, axis=[2, 3, 4])

    return autoencoders.in_batches(errors, images)

  def _write_coder(
    self, step: int, coder: Modules, images: np.ndarray
  ) -> dict[str, Any]:
    """Freezes the codebooks that are good enough for nearly all new images."""
    good = self._errors(coder, images) <= self.section.error
    fits = good.mean(axis=0) >= self.section.frozen
    frozen = np.logical_or(self._part["frozen"], fits).tolist()
    return {**super()._write_coder(step, coder, images), "frozen": frozen}

  def _again(self, coder: Modules, old: EncodedImages) -> EncodedImages:
    """Tries images again that have been kept without loss."""
    places = [k for k, string in enumerate(old.images) if not string[0]]
    if not places:
      return old
    raw = self.decode(coder, [old.images[k] for k in places])
    images = list(old.images)
    for place, string in zip(places, self.encode(coder, raw), strict=True):
      images[place] = string
    return dataclasses.replace(old, images=images)


# Caccia et al. (2020), adaptive quantization modules, as in the released code:
# modules learn greedily from new images and from as many of memory; an image is
# kept at the most compressed level whose reconstruction is within `aqm.error`;
# once that holds for nearly all new images, the codebook is frozen, while
# encoder and decoder go on learning. Until then codebooks drift, and decoders
# always do. The released code stores images by frozen modules only, sees every
# image once, and decodes by a moving average of the decoder; several codebooks
# share the channels of a place, where here each codes what the last one left.
AQM = Method(
  memory=ModuleMemory,
  start=from_last,
  objective=er_objective,
  extra_inputs=draw_replayed,
)
