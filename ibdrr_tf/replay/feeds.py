"""From codes to training batches: the replay pipeline.

    codes in RAM ─► shuffle ─► batch ─► VQ decoder ─► crop, flip ─► classifier
    raw twins ──────────────────────────────────────► crop, flip ─► (IB)

Bit-strings are decoded to codes once a phase. The VQ decoder runs in the
training step, on whatever device trains, or once a phase when images are
cached. Some examples have a *twin*: the raw image that their codes came from.
Images that were remembered in another form join after the decoder.
"""

import abc
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.codec import decode_codes, decode_images
from ibdrr_tf.replay.codes import Codes

__all__ = [
  "CodeFeed",
  "Feed",
  "ImageFeed",
  "Prepared",
  "Twins",
]

# Images decoded at once where all are read.
_READ = 500


class Prepared(NamedTuple):
  """A batch as the classifier sees it.

  Attributes:
    images: uint8 [b, h, w, 3], reconstructions, augmented.
    raw: uint8 [b, h, w, 3], their twins under the same augmentation; black
      where there is none. None if no example has one.
    has_raw: bool [b].
  """

  images: tf.Tensor
  raw: tf.Tensor | None
  has_raw: tf.Tensor | None


@dataclasses.dataclass(frozen=True)
class Twins:
  """Raw images of some examples.

  Attributes:
    raw: the images, read by their own numbers.
    number: int64 [n], for each example its twin's number, or -1.
  """

  raw: Examples
  number: np.ndarray


class Feed(abc.ABC):
  """Examples that are remembered with some loss.

  It gives batches as `Examples` does, but images may still be codes in
  them: `prepare` is to be called in the training step.

  Args:
    labels: int32 [n].
    image_size: height and width of images.
    twins: raw images of some of them; None if there are none.
    raw_share: how often an example that has a twin is replaced by it.
  """

  def __init__(
    self,
    labels: np.ndarray,
    image_size: tuple[int, int],
    *,
    twins: Twins | None = None,
    raw_share: float = 0.0,
  ):
    self.labels = labels
    self._image_size = image_size
    self._twins = twins
    self._raw_share = raw_share if twins else 0.0

  def __len__(self) -> int:
    return len(self.labels)

  @property
  def failure(self) -> UserError | None:
    """Why batches could not be read: TensorFlow's error has lost its type."""
    return None

  def steps(self, batch_size: int, replicas: int = 1) -> int:
    """Number of batches in an epoch; see `stream.batch_stops`."""
    return len(stream.batch_stops(len(self), batch_size, replicas))

  def training_batches(
    self,
    *,
    batch_size: int,
    epochs: range,
    seed: tf.Tensor,
    augment: Augmentation,
    share: stream.Share = stream.WHOLE,
  ) -> tf.data.Dataset:
    """Batches for `prepare`; the arguments are those of `Examples`.

    Returns:
      A data set of (a dictionary of tensors [b, …], labels int32 [b]).
    """
    count = len(self)
    with tf.device("/CPU:0"):
      stored = {k: tf.constant(v) for k, v in self._stored().items()}
      labels = tf.constant(self.labels)

    def batch(indices: tf.Tensor, drawn: tf.Tensor) -> tuple:
      inputs = {k: tf.gather(v, indices) for k, v in stored.items()}
      inputs["drawn"] = drawn
      if self._twins:
        inputs |= self._read_twins(indices)
      return inputs, tf.gather(labels, indices)

    return (
      stream.shuffled_batches(
        count,
        lambda key: self._draw(count, augment, key),
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
        share=share,
      )
      .map(batch, num_parallel_calls=tf.data.AUTOTUNE)
      .prefetch(tf.data.AUTOTUNE)
    )

  def preparation(
    self, augment: Augmentation
  ) -> Callable[[dict[str, tf.Tensor]], Prepared]:
    """What makes images of a batch, inside the training step.

    Args:
      augment: as it was given to `training_batches`.
    """

    def prepare(inputs: dict[str, tf.Tensor]) -> Prepared:
      images = self._images(inputs)
      takes_raw, drawn = inputs["drawn"][:, 0] == 1, inputs["drawn"][:, 1:]
      images = augment.apply(images, drawn)
      if "raw" not in inputs:
        return Prepared(images, None, None)
      raw = augment.apply(inputs["raw"], drawn)
      takes_raw &= inputs["has_raw"]
      # Who is replaced by its twin has nothing to learn from it any more.
      return Prepared(
        tf.where(takes_raw[:, tf.newaxis, tf.newaxis, tf.newaxis], raw, images),
        raw,
        inputs["has_raw"] & ~takes_raw,
      )

    return prepare

  def read_all(self) -> np.ndarray:
    """All images as they are remembered, in order: uint8 [n, h, w, 3]."""
    stored = self._stored()
    images = np.empty([len(self), *self._image_size, 3], np.uint8)
    for start in range(0, len(self), _READ):
      part = slice(start, start + _READ)
      images[part] = self._images({k: v[part] for k, v in stored.items()})
    return images

  def _draw(
    self, count: int | tf.Tensor, augment: Augmentation, key: tf.Tensor
  ) -> tf.Tensor:
    """Whether to take the twin, and changes: int32 [count, 1 + k]."""
    drawn = augment.draw(count, key)
    key = tf.random.experimental.stateless_fold_in(key, 1)
    chance = tf.random.stateless_uniform([count, 1], key)
    return tf.concat([tf.cast(chance < self._raw_share, tf.int32), drawn], 1)

  @abc.abstractmethod
  def _stored(self) -> dict[str, np.ndarray]:
    """What is kept in RAM, by example."""

  def _images(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    """The images of a batch: uint8 [b, h, w, 3]."""
    return inputs["images"]

  def _read_twins(self, indices: tf.Tensor) -> dict[str, tf.Tensor]:
    number = tf.gather(tf.constant(self._twins.number), indices)
    has_raw = number >= 0
    raw = self._twins.raw.read(tf.boolean_mask(number, has_raw))
    shape = [tf.size(indices, tf.int64), *self._image_size, 3]
    raw = tf.scatter_nd(tf.where(has_raw), raw, shape)
    raw = tf.ensure_shape(raw, [None, *self._image_size, 3])
    return {"raw": raw, "has_raw": has_raw}


class CodeFeed(Feed):
  """Examples that are remembered as codes.

  Args:
    codes: all examples.
    vqvae: decodes them.
    image_size: height and width to which reconstructions are cut.
    cache: `codes` decodes images in every step, `images` once and for all.
    **options: of `Feed`.
  """

  def __init__(
    self,
    codes: Codes,
    vqvae: HierarchicalVQVAE,
    image_size: tuple[int, int],
    *,
    cache: str = "codes",
    **options: Any,
  ):
    super().__init__(codes.labels, image_size, **options)
    self._codes = codes
    self._vqvae = vqvae
    self._cache = cache

  def _stored(self) -> dict[str, np.ndarray]:
    """What is kept in RAM, by example."""
    codes = self._codes
    if self._cache == "codes":
      return {"top": codes.top, "bottom": codes.bottom}
    return {"images": decode_images(self._vqvae, codes, self._image_size)}

  def _images(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    if "images" in inputs:
      return super()._images(inputs)
    return decode_codes(
      self._vqvae, inputs["top"], inputs["bottom"], self._image_size
    )


class ImageFeed(Feed):
  """Examples that were remembered in another form, and are decoded already.

  Args:
    images: uint8 [n, h, w, 3].
    labels: int32 [n].
    **options: of `Feed`.
  """

  def __init__(self, images: np.ndarray, labels: np.ndarray, **options: Any):
    super().__init__(labels, images.shape[1:3], **options)
    self._decoded = images

  def _stored(self) -> dict[str, np.ndarray]:
    return {"images": self._decoded}
