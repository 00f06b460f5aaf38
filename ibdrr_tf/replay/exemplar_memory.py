"""A few raw images of each class, losslessly compressed."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.examples import Examples, concatenate, in_memory, take
from ibdrr_tf.data.task import Task
from ibdrr_tf.replay import image_formats, selection
from ibdrr_tf.replay.image_store import EncodedImages, ImageStore, file_bytes
from ibdrr_tf.replay.memory import Embeds, Memory, Setting

__all__ = ["ExemplarMemory", "Exemplars"]

# Images of a class that are encoded to guess the size of one, and how far that
# guess may be wrong.
_SAMPLE = 16
_CAUTION = 1.1

# Changes chosen images before they are kept: (memory, task, network, images
# uint8 [n, h, w, 3], labels int32 [n]) -> images.
Refine = Callable[
  ["ExemplarMemory", Task, Embeds, np.ndarray, np.ndarray], np.ndarray
]


class Exemplars:
  """Raw images of a memory, best first within each class.

  A class has at most `memory.exemplars_per_class` of them. They are chosen in
  the step that introduces the class; a class that has fewer gets more when more
  of its images come. With a byte budget, the number is the largest, the same
  for all classes, whose files fit.

  Args:
    memory: whose folder and configuration these are.
    selected: how images are chosen, of `selection.SELECTIONS`; None takes
      `memory.selection`.
    fills: whether a byte budget, where there is one, is filled with them; else
      it only limits them.
  """

  def __init__(
    self, memory: Memory, selected: str | None = None, *, fills: bool = False
  ):
    self._memory = memory
    self._fills = fills and memory.config.memory.total_bytes > 0
    self._selection = selected or memory.config.memory.selection
    self._shape = memory.setting.image_shape
    self.store = ImageStore(memory.folder, "exemplars")

  @property
  def bytes(self) -> int:
    """Size of the files in force."""
    return sum(self.store.contents["files"].values())

  def read(self) -> tuple[np.ndarray, np.ndarray]:
    """Images to learn from, uint8 [n, h, w, 3], and their labels, int32 [n]."""
    return self._decoded(False)

  def labels(self) -> np.ndarray:
    """Labels of the images to learn from, int32 [n]."""
    kept = self.store.read()
    return kept.labels[~kept.held_out]

  def held_out(self) -> Examples | None:
    """Images that only test; None without any."""
    images, labels = self._decoded(True)
    return in_memory(images, labels) if len(labels) else None

  def _decoded(self, held_out: bool) -> tuple[np.ndarray, np.ndarray]:
    kept = self.store.read()
    kept = kept.take(kept.held_out == held_out)
    images = image_formats.decode(kept.images, "lossless", self._shape)
    return images, kept.labels

  def choose(self, task: Task, network: Embeds) -> np.ndarray:
    """Which new images to keep: int64 [m] indices, class by class, best first.

    Workers on other hardware may see features that differ in a last bit, and
    so choose others: the chief decides.
    """
    config = self._memory.config
    kept = self.labels()
    chosen = [np.zeros(0, np.int64)]
    for label in np.unique(task.new.labels):
      members = np.flatnonzero(task.new.labels == label)
      count = config.memory.exemplars_per_class - int(np.sum(kept == label))
      if self._fills:
        count = len(members)  # As many as fit; see `write`.
      if count <= 0:
        continue
      if self._selection == "herding":
        picked = selection.herd(
          network.features(take(task.new, members)), count
        )
      else:
        seed = (config.seed, int(label))
        if label < task.old_classes:
          seed += (task.step,)
        picked = selection.random_order(len(members), seed)[:count]
      chosen.append(members[picked])
    mine = np.concatenate(chosen)
    team = self._memory.setting.team
    return team.gather(mine if team.is_chief else mine[:0])

  def encode(
    self, task: Task, chosen: np.ndarray, images: np.ndarray
  ) -> EncodedImages:
    """New exemplars, and a few new images that only test.

    Args:
      task: the step.
      chosen: indices of the new exemplars, int64 [m].
      images: the new exemplars, uint8 [m, h, w, 3].
    """
    new = EncodedImages(
      image_formats.encode(images, "lossless"), task.new.labels[chosen]
    )
    if task.held_out is None or not len(task.held_out):
      return new
    return EncodedImages.join([new, self._encode_held_out(task.held_out)])

  def _encode_held_out(self, examples: Examples) -> EncodedImages:
    """A tenth as many as there are exemplars of a class, at least one."""
    most = max(1, self._memory.config.memory.exemplars_per_class // 10)
    chosen = np.concatenate(
      [
        np.flatnonzero(examples.labels == label)[:most]
        for label in np.unique(examples.labels)
      ]
    )
    images = examples.read(tf.constant(chosen)).numpy()
    return EncodedImages(
      image_formats.encode(images, "lossless"),
      examples.labels[chosen],
      np.ones(len(chosen), bool),
    )

  def write(
    self,
    step: int,
    images: EncodedImages,
    room: float,
    most: int | None = None,
  ) -> tuple[dict[str, Any], int]:
    """Writes as many images of each class as fit into so many bytes.

    Args:
      step: that writes.
      images: those in force, unchanged, and after them the added ones; or a
        part of those in force.
      room: bytes that the files may have; without room, none is kept.
      most: images of a class, at most; None is as many as there are.

    Returns:
      The part of the manifest, and how many images were given up.
    """
    kept = images if most is None else self.first(images, most)
    kept = self._within(kept, room)
    contents = self.store.contents
    added = images.take(np.arange(len(images)) >= contents["images"])
    if (
      len(kept) == len(images) >= contents["images"]
      # A class in two files needs more bytes than in one.
      and self.bytes + file_bytes(added) <= room
      and self._memory.may_append(contents)
    ):
      part = self.store.append(step, added)
    else:
      part = self.store.replace(step, kept)
    return part, len(images) - len(kept)

  def _within(self, images: EncodedImages, room: float) -> EncodedImages:
    if file_bytes(images) <= room:
      return images
    low, high = 0, int(np.bincount(images.labels).max())
    while high - low > 1:
      middle = (low + high) // 2
      fits = file_bytes(self.first(images, middle)) <= room
      low, high = (middle, high) if fits else (low, middle)
    return self.first(images, low)

  def first(self, images: EncodedImages, count: int) -> EncodedImages:
    """The first images of each class; a tenth as many that only test."""
    places = np.zeros(len(images), np.int64)
    for mark in (False, True):
      for label in np.unique(images.labels):
        members = (images.labels == label) & (images.held_out == mark)
        places[members] = np.arange(members.sum())
    most = np.where(images.held_out, -(-count // 10), count)
    return images.take(places < most)


class ExemplarMemory(Memory):
  """Raw exemplars of old classes, replayed beside the new images.

  Args:
    setting: where and how.
    step: see `Memory`.
    selected: see `Exemplars`.
    refine: changes new exemplars before they are kept; None leaves them.
  """

  def __init__(
    self,
    setting: Setting,
    step: int | None = -1,
    *,
    selected: str | None = None,
    refine: Refine | None = None,
  ):
    super().__init__(setting, step)
    self.exemplars = Exemplars(self, selected, fills=True)
    self._refine = refine

  def examples(self, task: Task) -> Examples:
    """Exemplars of old classes and all new images."""
    if self.config.memory.total_bytes:
      self._check_room(task)
    return concatenate([in_memory(*self.exemplars.read()), task.new])

  def add(self, task: Task, network: Embeds) -> None:
    """Keeps exemplars of the new images too."""
    chosen = self.exemplars.choose(task, network)
    images = task.new.read(tf.constant(chosen)).numpy()
    if self._refine:
      images = self._refine(
        self, task, network, images, task.new.labels[chosen]
      )
    added = self.exemplars.encode(task, chosen, images)
    old = self.exemplars.store.read()
    self._write(task.step, EncodedImages.join([old, added]))

  def forget(self, step: int, label: int) -> None:
    """Keeps the exemplars of the other classes."""
    self._write(step, without(self.exemplars.store.read(), label))

  def _check_room(self, task: Task) -> None:
    """Refuses a hopeless byte budget before training: one image of a class.

    Which image will be chosen is not known yet: the largest of some stands for
    it, and a little more.
    """
    chosen = [np.zeros(0, np.int64)]
    for label in np.unique(task.new.labels):
      members = np.flatnonzero(task.new.labels == label)[:_SAMPLE]
      images = task.new.read(tf.constant(members)).numpy()
      sizes = map(len, image_formats.encode(images, "lossless"))
      chosen.append(members[[int(np.argmax(list(sizes)))]])
    chosen = np.concatenate(chosen)
    images = task.new.read(tf.constant(chosen)).numpy()
    added = self.exemplars.encode(task, chosen, images)
    old = self.exemplars.store.read()
    one = self.exemplars.first(EncodedImages.join([old, added]), 1)
    self._check_least(_CAUTION * file_bytes(one))

  def _write(self, step: int, images: EncodedImages) -> None:
    self._check_least(file_bytes(self.exemplars.first(images, 1)))
    room = self._room()
    part, self.dropped = self.exemplars.write(step, images, room)
    self.folder.write(step, {self.exemplars.store.part: part})

  def held_out(self) -> Examples | None:
    """Raw images that only test."""
    return self.exemplars.held_out()

  def stored_bytes(self) -> dict[str, int]:
    """The exemplar files."""
    return {
      **super().stored_bytes(),
      "raw_exemplars": self.exemplars.bytes,
      "images": self.exemplars.store.contents["images"],
    }

  def means(self, network: Embeds) -> np.ndarray:
    """Where the exemplars of each class lie: float32 [classes, d], unit norm.

    Each is the renormalised average of the means over exemplars and over their
    horizontal flips. A class without exemplars has a mean of NaN.
    """
    images, labels = self.exemplars.read()
    return selection.class_means(
      network.features(in_memory(images, labels)),
      network.features(in_memory(images[:, :, ::-1], labels)),
      labels,
    )


def without(images: EncodedImages, label: int) -> EncodedImages:
  """The images of all other classes, whose later labels move up by one."""
  kept = images.take(images.labels != label)
  labels = np.where(kept.labels > label, kept.labels - 1, kept.labels)
  return dataclasses.replace(kept, labels=labels.astype(np.int32))
