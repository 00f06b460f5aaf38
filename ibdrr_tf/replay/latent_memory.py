"""Outputs of an inner stage of the network, of some images of each class.

    images ─► frozen stages ─► latents ─► [product quantisation] ─► memory
                                  │
    classifier ◄── upper stages ◄─┴── latents of memory, decoded

What is below the stage is frozen after the first step, so that latents of any
step mean the same.
"""

from typing import Any

import numpy as np

from ibdrr_tf.classifiers import resnet
from ibdrr_tf.data.examples import Examples, take
from ibdrr_tf.data.task import Task
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import product_quantizer
from ibdrr_tf.replay.exemplars import Exemplars, without
from ibdrr_tf.replay.image_store import EncodedImages, file_bytes
from ibdrr_tf.replay.memory import Embeds, Memory, Setting
from ibdrr_tf.replay.networks import read_arrays, write_arrays

__all__ = ["LatentMemory"]

_TYPE = "<f2"
_ENTRIES = 256
# Vectors from which codebooks are learned.
_SAMPLE = 20_000


class LatentMemory(Memory):
  """Latents of `memory.exemplars_per_class` random images of each class.

  With a byte budget, as many of each class as fit. No images that only test are
  kept.

  Args:
    setting: where and how.
    step: see `Memory`.
    quantised: whether latents are product-quantised, by codebooks that are
      learned in the first step; else they are float16 numbers.
  """

  def __init__(
    self, setting: Setting, step: int | None = -1, *, quantised: bool
  ):
    super().__init__(setting, step)
    self._quantised = quantised
    self.exemplars = Exemplars(self, "random", fills=True)

  @property
  def stage(self) -> str:
    """Name of the layer whose outputs are kept."""
    return resnet.inner_stage(self.config.classifier.backbone)

  def examples(self, task: Task) -> Examples:
    """The new images."""
    if not len(task.new):
      raise UserError(
        f"the method {self.config.method} keeps no images to train on again: "
        f"learn new ones."
      )
    if self.config.memory.total_bytes and self.step >= 0:
      self._check_room(task)
    return task.new

  def _check_room(self, task: Task) -> None:
    """Refuses a hopeless byte budget before training: one latent of a class."""
    size = int(np.prod(self._shape)) * np.dtype(_TYPE).itemsize
    if self._quantised:
      size = int(np.prod(self._shape)) // self.config.remind.dimensions
    labels = np.unique(task.new.labels)
    added = EncodedImages([bytes(size)] * len(labels), labels)
    old = self.exemplars.store.read()
    one = self.exemplars.first(EncodedImages.join([old, added]), 1)
    fixed = sum(self._part["files"].values())
    self._check_least(file_bytes(one), fixed)

  def read(self) -> tuple[np.ndarray, np.ndarray]:
    """Latents, float16 [n, h, w, c], and their labels, int32 [n]."""
    kept, shape = self.exemplars.store.read(), self._shape
    data = b"".join(kept.images)
    if self._quantised:
      codes = np.frombuffer(data, np.uint8)
      books = self._codebooks()
      latents = product_quantizer.decode(codes.reshape(-1, len(books)), books)
    else:
      latents = np.frombuffer(data, _TYPE)
    return latents.reshape(-1, *shape).astype(_TYPE), kept.labels

  def add(self, task: Task, network: Embeds) -> None:
    """Keeps latents of the new images too."""
    chosen = self.exemplars.choose(task, network)
    latents = network.outputs(self.stage, take(task.new, chosen))
    parts = {"codebooks": {**self._part, "shape": list(latents.shape[1:])}}
    books = None
    if self._quantised:
      if not self._part["files"]:
        parts["codebooks"]["files"] = self._learn_codebooks(task, latents)
      books = self._codebooks(parts["codebooks"])
    encoded = EncodedImages(_encode(latents, books), task.new.labels[chosen])
    everything = EncodedImages.join([self.exemplars.store.read(), encoded])
    self._write(task.step, everything, parts)

  def forget(self, step: int, label: int) -> None:
    """Keeps the latents of the other classes."""
    parts = {"codebooks": self._part}
    self._write(step, without(self.exemplars.store.read(), label), parts)

  def stored_bytes(self) -> dict[str, int]:
    """Latents, the files that hold them, and codebooks."""
    return self._coded_bytes(self.exemplars.store.contents, self._part)

  @property
  def _part(self) -> dict[str, Any]:
    """Codebooks and the shape of latents, in the manifest."""
    return self.folder.part("codebooks", {"files": {}, "shape": [0, 0, 0]})

  @property
  def _shape(self) -> list[int]:
    return self._part["shape"]

  def _codebooks(self, part: dict[str, Any] | None = None) -> np.ndarray:
    (name,) = (part or self._part)["files"]
    return read_arrays(self.folder.path / name, "codebooks")

  def _learn_codebooks(self, task: Task, latents: np.ndarray) -> dict[str, int]:
    """Learns codebooks and writes them; gives their file and its size."""
    dimensions, channels = self.config.remind.dimensions, latents.shape[-1]
    if channels % dimensions:
      raise UserError(
        f"config.remind.dimensions={dimensions} does not divide the "
        f"{channels} channels of {self.stage}: give a divisor."
      )
    vectors = latents.reshape(-1, channels)
    generator = np.random.default_rng((self.config.seed, task.step))
    vectors = generator.permutation(vectors)[:_SAMPLE]
    books = product_quantizer.fit(
      vectors, dimensions, _ENTRIES, self.config.seed
    )
    path = self.folder.new_file("codebooks", task.step, "npz")
    self.folder.team.on_chief(
      lambda: write_arrays(path, codebooks=books.astype(_TYPE))
    )
    return {path.name: path.stat().st_size}

  def _write(
    self, step: int, latents: EncodedImages, parts: dict[str, Any]
  ) -> None:
    fixed = sum(parts["codebooks"]["files"].values())
    self._check_least(file_bytes(self.exemplars.first(latents, 1)), fixed)
    part, self.dropped = self.exemplars.write(step, latents, self._room(fixed))
    self.folder.write(step, {**parts, self.exemplars.store.part: part})


def _encode(latents: np.ndarray, books: np.ndarray | None) -> list[bytes]:
  """Bytes of each latent."""
  if books is None or not len(latents):
    return [latent.astype(_TYPE).tobytes() for latent in latents]
  vectors = latents.reshape(-1, latents.shape[-1])
  codes = product_quantizer.encode(vectors, books)
  return [row.tobytes() for row in codes.reshape(len(latents), -1)]
