"""Images as the codes of a network that keeps learning.

    new images ──┐
                 ├─► training ─► coder ─► codes of new images ─► memory
    memory ──────┘                 │
      │ codes, by the coder now ◄──┘
      ▼
    images to replay

Codes of old images stay as they are while the coder changes: what is decoded
from them drifts. `bench drift` measures it.
"""

import abc
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import Examples, concatenate, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import image_formats
from ibdrr_tf.replay.autoencoders import Coder, fit_coder
from ibdrr_tf.replay.exemplars import Exemplars, without
from ibdrr_tf.replay.image_store import EncodedImages, file_bytes
from ibdrr_tf.replay.memory import Embeds, Memory, Setting
from ibdrr_tf.replay.networks import read_network, write_network

__all__ = ["CodedMemory", "pack_codes", "unpack_codes"]

_START, _ORDER = 15, 16  # folded into the seed
_EVERYTHING = 1 << 40
_SAMPLE = 16
_CAUTION = 1.1


def pack_codes(codes: np.ndarray, bits: int) -> list[bytes]:
  """Writes codes in as few bits as they need.

  Args:
    codes: int [n, codes of an image], each below 2^bits.
    bits: of a code.

  Returns:
    n strings.
  """
  flags = (codes[:, :, np.newaxis] >> np.arange(bits)) & 1
  rows = np.packbits(flags.astype(np.uint8).reshape(len(codes), -1), axis=1)
  return [row.tobytes() for row in rows]


def unpack_codes(strings: list[bytes], bits: int, count: int) -> np.ndarray:
  """Undoes `pack_codes`: int32 [n, count]."""
  data = np.frombuffer(b"".join(strings), np.uint8)
  flags = np.unpackbits(data.reshape(len(strings), -1), axis=1)
  flags = flags[:, : count * bits].reshape(len(strings), count, bits)
  return (flags.astype(np.int32) << np.arange(bits)).sum(axis=2, dtype=np.int32)


class CodedMemory(Memory):
  """All images seen, as codes; with a byte budget as many as fit.

  No images that only test are kept. A subclass says what the coder is.

  Attributes:
    SECTION: its part of the configuration.
  """

  SECTION = ""

  def __init__(self, setting: Setting, step: int | None = -1):
    super().__init__(setting, step)
    self.section = setting.config[self.SECTION]
    self.exemplars = Exemplars(self, "random", fills=True)

  @abc.abstractmethod
  def build(self) -> Coder:
    """A coder with random weights, within the current scope."""

  @abc.abstractmethod
  def encode(self, coder: Any, images: np.ndarray) -> list[bytes]:
    """Codes of images, uint8 [n, h, w, 3]: n strings."""

  @abc.abstractmethod
  def decode(self, coder: Any, codes: list[bytes]) -> np.ndarray:
    """Images of codes: uint8 [n, h, w, 3]."""

  def examples(self, task: Task) -> Examples:
    """The new images; decoded ones alone if there are none."""
    if self.config.memory.total_bytes and self.step >= 0:
      self._check_room(task)
    return task.new if len(task.new) else in_memory(*self.replayed())

  def replayed(self) -> tuple[np.ndarray, np.ndarray]:
    """Decoded images, uint8 [n, h, w, 3], and their labels, int32 [n]."""
    kept = self.exemplars.store.read()
    return self.decode(self.coder(), kept.images), kept.labels

  def coder(self) -> Coder:
    """The kept coder."""
    coder = self.build()
    (name,) = self._part["files"]
    read_network(self.folder.path / name, coder)
    return coder

  def add(self, task: Task, network: Embeds) -> None:
    """Trains the coder, and keeps codes of the new images too."""
    old = self.exemplars.store.read()
    if not len(task.new):
      self._write(task.step, old, old, self._part)
      return
    coder = self._train(task, old)
    chosen = self.exemplars.choose(task, network, _EVERYTHING)
    images = task.new.read(tf.constant(chosen)).numpy()
    part = self._write_coder(task.step, coder, images)
    new = EncodedImages(self.encode(coder, images), task.new.labels[chosen])
    again = self._again(coder, old)
    self._write(task.step, old, EncodedImages.join([again, new]), part)

  def forget(self, step: int, label: int) -> None:
    """Keeps the codes of the other classes; the coder stays as it is."""
    old = self.exemplars.store.read()
    self._write(step, old, without(old, label), self._part)

  def stored_bytes(self) -> dict[str, int]:
    """Codes, the files that hold them, and the coder."""
    return self._coded_bytes(self.exemplars.store.contents, self._part)

  def _train(self, task: Task, old: EncodedImages) -> Coder:
    """Trains the coder on new images and on as many decoded ones."""
    seed = stream.fold_in(self.config.seed, task.step, _START)
    # The same first weights in every process.
    set_random_seed(int(seed[0].numpy()) & 0x7FFFFFFF)
    examples = task.new
    if self._part["files"]:
      generator = np.random.default_rng((self.config.seed, task.step, _ORDER))
      some = generator.permutation(len(old))[: len(task.new)]
      back = self.decode(self.coder(), old.take(some).images)
      examples = concatenate([task.new, in_memory(back, old.labels[some])])
    with self.setting.team.strategy.scope():
      coder = self.build()
      if self._part["files"]:
        (name,) = self._part["files"]
        read_network(self.folder.path / name, coder)
    fit_coder(
      coder,
      examples,
      section=self.section,
      config=self.config,
      state=self.folder.path.parent,
      step=task.step,
    )
    return coder

  def _again(self, coder: Coder, old: EncodedImages) -> EncodedImages:
    """What becomes of the codes of old images; as a rule they stay."""
    return old

  @property
  def _part(self) -> dict[str, Any]:
    """The coder, in the manifest."""
    return self.folder.part("coder", {"files": {}})

  def _write_coder(
    self, step: int, coder: Coder, images: np.ndarray
  ) -> dict[str, Any]:
    """Writes the coder; gives its part of the manifest."""
    path, weights = (
      self.folder.new_file("coder", step, "npz"),
      coder.get_weights(),
    )
    self.folder.team.on_chief(lambda: write_network(path, weights))
    return {"files": {path.name: path.stat().st_size}}

  def _write(
    self,
    step: int,
    old: EncodedImages,
    images: EncodedImages,
    part: dict[str, Any],
  ) -> None:
    """Writes as many images as fit, beside a coder that is there already."""
    fixed = sum(part["files"].values())
    self._check_least(file_bytes(self.exemplars.first(images, 1)), fixed)
    room, store = self._room(fixed), self.exemplars.store
    if images.images[: len(old)] == old.images:
      codes, self.dropped = self.exemplars.write(step, images, room)
    else:
      kept = self.exemplars.within(images, room)
      codes, self.dropped = store.replace(step, kept), len(images) - len(kept)
    self.folder.write(step, {"coder": part, store.part: codes})

  def _check_room(self, task: Task) -> None:
    """Refuses a hopeless byte budget before training: one image of a class.

    No code is longer than the image without loss, and a byte.
    """
    sizes, labels = [], np.unique(task.new.labels)
    for label in labels:
      members = np.flatnonzero(task.new.labels == label)[:_SAMPLE]
      images = task.new.read(tf.constant(members)).numpy()
      files = image_formats.encode(images, "lossless")
      sizes.append(1 + int(_CAUTION * max(map(len, files))))
    added = EncodedImages([bytes(size) for size in sizes], labels)
    old = self.exemplars.store.read()
    one = self.exemplars.first(EncodedImages.join([old, added]), 1)
    self._check_least(file_bytes(one), sum(self._part["files"].values()))
