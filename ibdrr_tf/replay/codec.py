"""The codec of a run, as replay uses it."""

import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np
import tensorflow as tf
import tqdm

from ibdrr_tf.codec.lossless.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.data.examples import Examples, in_memory, ordered_batches, take
from ibdrr_tf.distribution import ALONE, Team
from ibdrr_tf.replay.codes import Codes

__all__ = [
  "ReplayCodec",
  "coarsen_codes",
  "decode_codes",
  "decode_images",
  "encode_examples",
  "reconstruct",
]

_BATCH = 250


@dataclasses.dataclass(frozen=True)
class ReplayCodec:
  """Both stages: the lossy one is frozen, the lossless one follows the codes.

  Attributes:
    folder: where both are stored.
    vqvae: the lossy stage.
    vqvae_bytes: what it takes on the disk.
    fit_bit_swap: trains the lossless stage: called with codes, `phase` and
      `start`, a model to fine-tune or None.
    coder: codes with any such model.
    team: the workers that share the work.
  """

  folder: pathlib.Path
  vqvae: HierarchicalVQVAE
  vqvae_bytes: int
  fit_bit_swap: Callable[..., BitSwapModel]
  coder: BitSwapCodec
  team: Team = ALONE

  def encode(self, examples: Examples) -> Codes:
    """Codes of all examples, in order; each worker encodes some of them."""
    if not len(examples):
      blank = np.zeros([1, *examples.image_shape], np.uint8)
      one = encode_examples(self.vqvae, in_memory(blank, np.zeros(1)))
      return one.take(np.zeros(0, np.int64))
    share = self.team.share(len(examples))
    mine = np.arange(share.start, share.stop)
    # A worker without images still encodes one, to learn the code shape.
    chosen = take(examples, mine if len(mine) else np.zeros(1, int))
    part = encode_examples(self.vqvae, chosen)
    levels = (
      self.team.gather(level[: len(mine)]) for level in (part.top, part.bottom)
    )
    return Codes(*levels, examples.labels)

  def reconstruct(self, images: tf.Tensor, detail: float = 100) -> tf.Tensor:
    """What is left of images, uint8 [n, h, w, 3], once they were coded."""
    if detail >= 100:
      return reconstruct(self.vqvae, images)
    top, bottom = self.vqvae.encode(images)
    threshold = self.vqvae.bottom_quantizer.threshold(detail)
    bottom = self.vqvae.coarsen(bottom, tf.fill([len(images)], threshold))
    return decode_codes(self.vqvae, top, bottom, tuple(images.shape[1:3]))


def reconstruct(vqvae: HierarchicalVQVAE, images: tf.Tensor) -> tf.Tensor:
  """What is left of images, uint8 [n, h, w, 3], once they were coded."""
  return decode_codes(vqvae, *vqvae.encode(images), tuple(images.shape[1:3]))


def encode_examples(vqvae: HierarchicalVQVAE, examples: Examples) -> Codes:
  """Codes of all examples, in order."""
  parts = []
  with tqdm.tqdm(
    total=len(examples),
    desc="encoding images",
    unit="image",
    leave=False,
    disable=None,
  ) as bar:
    for images in ordered_batches(examples, _BATCH):
      parts.append([level.numpy() for level in vqvae.encode(images)])
      bar.update(len(images))
  top, bottom = (
    np.concatenate(level).astype(np.int16) for level in zip(*parts, strict=True)
  )
  return Codes(top, bottom, examples.labels)


def coarsen_codes(
  vqvae: HierarchicalVQVAE, codes: Codes, detail: float | np.ndarray
) -> Codes:
  """Codes without the residual stages that change least.

  Args:
    vqvae: a model with blank codes, unless all detail stays.
    codes: as they were encoded, or already coarser: then the coarser counts.
    detail: 0 to 100, of all images or of each; see `VectorQuantizer.threshold`.
  """
  details = np.broadcast_to(np.asarray(detail, float), [len(codes)])
  if np.all(details >= 100):
    return codes
  vqvae.bottom_quantizer.check_blank()
  levels, places = np.unique(details, return_inverse=True)
  known = [vqvae.bottom_quantizer.threshold(level) for level in levels]
  thresholds = np.array(known, np.float32)[places]
  bottom = np.empty_like(codes.bottom)
  for start in range(0, len(codes), _BATCH):
    part = slice(start, start + _BATCH)
    bottom[part] = vqvae.coarsen(
      codes.bottom[part].astype(np.int32), thresholds[part]
    )
  return Codes(codes.top, bottom, codes.labels, codes.held_out)


def decode_codes(
  vqvae: HierarchicalVQVAE,
  top: tf.Tensor,
  bottom: tf.Tensor,
  image_size: tuple[int, int],
) -> tf.Tensor:
  """Images of codes of any integer type: uint8 [n, height, width, 3]."""
  height, width = image_size
  images = vqvae.decode(tf.cast(top, tf.int32), tf.cast(bottom, tf.int32))
  return tf.ensure_shape(images[:, :height, :width], [None, height, width, 3])


def decode_images(
  vqvae: HierarchicalVQVAE, codes: Codes, image_size: tuple[int, int]
) -> np.ndarray:
  """Images of codes, uint8 [n, height, width, 3], in batches."""
  images = np.empty([len(codes), *image_size, 3], np.uint8)
  for start in tqdm.trange(
    0, len(codes), _BATCH, desc="decoding images", leave=False, disable=None
  ):
    part = slice(start, start + _BATCH)
    images[part] = decode_codes(
      vqvae, codes.top[part], codes.bottom[part], image_size
    )
  return images
