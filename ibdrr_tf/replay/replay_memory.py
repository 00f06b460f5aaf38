"""A memory for one's own Keras model: images in, batches out.

memory = ReplayMemory("memory", "cifar100")
memory.add(images, labels)
model.fit(memory.dataset(batch_size=128, augment=True), epochs=5)
"""

import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.image_codec import ImageCodec
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.data.tuning import untuned
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.lock import Lock
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codec import decode_codes, decode_images, encode_examples
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.manifest import MemoryFolder

__all__ = ["ReplayMemory"]

_NAMES = "classes"
_MOST_CLASSES = 2**31 - 1


class ReplayMemory:
  """Labelled images as bit-strings, in a folder that can be moved and copied.

  Every `add` appends to the folder and rewrites nothing; it counts wholly or,
  if the process is killed, not at all. The codec is copied into the folder.

  Args:
    path: the folder; made by the first `add`.
    codec: for a new folder: the name of a codec that comes with the package, a
      codec's folder, or what `load_codec` has given; None is `cifar100`. A
      folder that is there keeps its own.
    padding: pixels of padding before a random crop, with `augment`.
  """

  def __init__(
    self,
    path: str | pathlib.Path,
    codec: str | ImageCodec | None = None,
    *,
    padding: int = 4,
  ):
    self.path = pathlib.Path(path)
    self._origin = getattr(codec, "folder", codec) or pretrained.DEFAULT
    self._augmentation = Augmentation(padding)
    self._models = self.path / "codec"
    self._lock = Lock(self.path)
    if not self._is_new:
      pretrained.check_folder(self._models)
      if codec is not None and not _same(
        pretrained.folder_of(self._origin), self._models
      ):
        raise UserError(
          f"the memory {path} was written with another codec than "
          f"{self._origin!r}: leave the codec out, or choose another folder."
        )
    self._open()

  def __len__(self) -> int:
    return self._store.contents["images"]

  @property
  def classes(self) -> tuple[str, ...]:
    """Class names, in label order; empty where labels are numbers."""
    return tuple(self._folder.parts.get(_NAMES, {}).get("names", ()))

  @property
  def labels(self) -> np.ndarray:
    """Label of each image, int32 [n], in the order of `images`."""
    return self._codes().labels if len(self) else np.zeros(0, np.int32)

  def add(self, images: np.ndarray, labels: Sequence[int | str]) -> None:
    """Remembers images.

    Args:
      images: uint8 [n, h, w, 3], all of the size of those that are there.
      labels: n class numbers, or n class names.
    """
    images = _checked(images)
    if len(images) != len(labels):
      raise UserError(
        f"there are {len(images)} images and {len(labels)} labels: give one "
        f"label for each image."
      )
    with self._lock:
      # Another process may have added images since this one looked.
      self._open()
      shape = self._folder.parts.get(_NAMES, {}).get("image_shape")
      if shape and list(images.shape[1:]) != shape:
        raise UserError(
          f"the images are {list(images.shape[1:])}, those of the memory "
          f"{self.path} {shape}: resize them."
        )
      numbers, names = self._numbers(labels)
      if self._is_new:
        self._copy_codec()
        self._open()
      codes = encode_examples(self._vqvae, in_memory(images, numbers))
      step = self._folder.step + 1
      part = self._store.append(step, codes)
      extra = {"image_shape": list(images.shape[1:]), "names": names}
      self._folder.write(step, {CodeStore.PART: part, _NAMES: extra})
      self._folder.settle()
      self._cached = None

  def images(self) -> tuple[np.ndarray, np.ndarray]:
    """All images, uint8 [n, h, w, 3], and their labels, int32 [n]."""
    codes = self._codes()
    return decode_images(self._vqvae, codes, self._size), codes.labels

  def dataset(
    self,
    batch_size: int,
    *,
    augment: bool = False,
    shuffle: bool = True,
    seed: int = 0,
  ) -> tf.data.Dataset:
    """Batches (images uint8 [b, h, w, 3], labels int32 [b]), one pass.

    Each iteration has another order and other crops. Codes are kept in RAM and
    become images batch by batch.

    Args:
      batch_size: images in a batch; the last one may have fewer.
      augment: whether to crop and flip at random.
      shuffle: whether to give images in random order.
      seed: of order, crops and flips.
    """
    if batch_size < 1:
      raise UserError(f"batch_size is {batch_size}: give 1 or more.")
    if not len(self):
      raise UserError(f"the memory {self.path} is empty: add images.")
    codes, size, vqvae = self._codes(), self._size, self._vqvae
    with tf.device("/CPU:0"):
      top, bottom, labels = map(
        tf.constant, (codes.top, codes.bottom, codes.labels)
      )
    numbers = tf.data.Dataset.range(len(codes))
    if shuffle:
      numbers = numbers.shuffle(
        len(codes), seed=seed, reshuffle_each_iteration=True
      )
    keys = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)

    def batch(chosen: tf.Tensor, key: tf.Tensor) -> tuple:
      images = decode_codes(
        vqvae, tf.gather(top, chosen), tf.gather(bottom, chosen), size
      )
      if augment:
        key = tf.stack([tf.cast(key % 2**31, tf.int32), 0])
        drawn = self._augmentation.draw(tf.shape(chosen)[0], key)
        images = self._augmentation.apply(images, drawn)
      return images, tf.gather(labels, chosen)

    batches = tf.data.Dataset.zip((numbers.batch(batch_size), keys))
    return (
      untuned(batches)
      .map(batch, num_parallel_calls=tf.data.AUTOTUNE)
      .prefetch(tf.data.AUTOTUNE)
    )

  def ledger(self) -> Ledger:
    """The bytes that are kept, the codec's included."""
    stored = self._store.stored_bytes()
    stored["index"] += self._folder.manifest_bytes
    vqvae = self._models / pretrained.VQVAE_FILE
    size = vqvae.stat().st_size if vqvae.is_file() else 0
    return Ledger(**stored, codec_vqvae=size)

  @property
  def _is_new(self) -> bool:
    return not (self._models / pretrained.VQVAE_FILE).is_file()

  @property
  def _size(self) -> tuple[int, int]:
    part = self._folder.part(_NAMES, {"image_shape": []})
    return tuple(part["image_shape"][:2])

  def _open(self) -> None:
    """Reads the newest manifest, and the codec once."""
    self._folder = MemoryFolder(self.path)
    self._store = CodeStore(self._folder, self._models)
    self._cached: Codes | None = None
    if not hasattr(self, "_vqvae") and not self._is_new:
      data = (self._models / pretrained.VQVAE_FILE).read_bytes()
      self._vqvae = vqvae_file.from_bytes(data)

  def _codes(self) -> Codes:
    if self._cached is None:
      self._cached = self._store.read()
    return self._cached

  def _copy_codec(self) -> None:
    """Copies a codec; the lossy stage last, as its presence says it all."""
    origin = pretrained.folder_of(self._origin)
    for name in (pretrained.BITSWAP_FILE, pretrained.VQVAE_FILE):
      with files.replaced(self._models / name) as beside:
        shutil.copyfile(origin / name, beside)

  def _numbers(self, labels: Sequence[Any]) -> tuple[np.ndarray, list[str]]:
    """Class numbers of labels, and all class names."""
    names = list(self.classes)
    if not isinstance(labels[0], (str, bytes)):
      numbers = np.asarray(labels)
      if (
        numbers.ndim != 1
        or not np.issubdtype(numbers.dtype, np.integer)
        or numbers.min() < 0
        or numbers.max() > _MOST_CLASSES
      ):
        raise UserError(
          f"the labels are {numbers.dtype} {list(numbers.shape)}: give class "
          f"numbers, integers from 0 to {_MOST_CLASSES} [n], or class names."
        )
      if names:
        raise UserError(
          f"the memory {self.path} has class names: give names, not numbers."
        )
      return numbers.astype(np.int32), names
    if len(self) and not names:
      raise UserError(
        f"the memory {self.path} has class numbers: give numbers, not names."
      )
    labels = [
      label.decode() if isinstance(label, bytes) else str(label)
      for label in labels
    ]
    names += sorted(set(labels) - set(names))
    return np.array([names.index(label) for label in labels], np.int32), names


def _same(one: pathlib.Path, other: pathlib.Path) -> bool:
  return all(
    (one / name).read_bytes() == (other / name).read_bytes()
    for name in (pretrained.BITSWAP_FILE, pretrained.VQVAE_FILE)
  )


def _checked(images: Any) -> np.ndarray:
  images = np.asarray(images)
  if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3:
    raise UserError(
      f"the images are {images.dtype} {list(images.shape)}: give uint8 [n, "
      f"height, width, 3] with values 0 to 255, e.g. (255 * "
      f"images).astype('uint8')."
    )
  if not len(images):
    raise UserError("images is empty: give at least one image.")
  return images
