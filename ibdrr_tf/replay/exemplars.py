"""Images of a memory that are kept one by one: which, and how many fit."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.examples import Examples, in_memory, take
from ibdrr_tf.data.task import Task
from ibdrr_tf.replay import image_formats, selection
from ibdrr_tf.replay.image_store import EncodedImages, ImageStore, file_bytes
from ibdrr_tf.replay.memory import Embeds, Memory

__all__ = ["Exemplars", "without"]


class Exemplars:
  """Images of a memory, best first within each class.

  A class has at most `memory.exemplars_per_class` of them. They are chosen in
  the step that introduces the class; a class that has fewer gets more when more
  of its images come. With a byte budget, the number is the largest, the same
  for all classes, whose files fit.

  Args:
    memory: whose folder and configuration these are.
    selected: how images are chosen, of `choices.SELECTIONS`; None takes
      `memory.selection`.
    fills: whether a byte budget, where there is one, is filled with them; else
      it only limits them.
    kind: a key of `image_formats.FORMATS`.
  """

  def __init__(
    self,
    memory: Memory,
    selected: str | None = None,
    *,
    fills: bool = False,
    kind: str = "lossless",
  ):
    self._kind = kind
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
    return self.decode(kept.take(kept.held_out == held_out))

  def decode(self, kept: EncodedImages) -> tuple[np.ndarray, np.ndarray]:
    """Images, uint8 [n, h, w, 3], and their labels, int32 [n]."""
    images = image_formats.decode(kept.images, self._kind, self._shape)
    return images, kept.labels

  def choose(
    self, task: Task, network: Embeds, most: int | None = None
  ) -> np.ndarray:
    """Which new images to keep: int64 [m] indices, class by class, best first.

    Workers on other hardware may see features that differ in a last bit, and
    so choose others: the chief decides.

    Args:
      task: the step.
      network: whose features are looked at.
      most: images of a class; None is `memory.exemplars_per_class`, or with a
        byte budget as many as fit.
    """
    config = self._memory.config
    kept = self.labels()
    chosen = [np.zeros(0, np.int64)]
    for label in np.unique(task.new.labels):
      members = np.flatnonzero(task.new.labels == label)
      limit = config.memory.exemplars_per_class if most is None else most
      count = limit - int(np.sum(kept == label))
      if self._fills and most is None:
        count = len(members)  # As many as fit; see `write`.
      if count <= 0:
        continue
      seed = (config.seed, int(label))
      if label < task.old_classes:
        seed += (task.step,)
      picked = self._pick(take(task.new, members), network, count, seed)
      chosen.append(members[picked])
    return self._as_chief(np.concatenate(chosen))

  def _pick(
    self, members: Examples, network: Embeds, count: int, seed: tuple[int, ...]
  ) -> np.ndarray:
    """Which images of a class to keep, best first: int64 [min(count, n)]."""
    if self._selection == "herding":
      return selection.herd(network.features(members), count)
    if self._selection == "coverage":
      return selection.sparsest(network.features(members))[:count]
    if self._selection in ("surprise", "reward"):
      sure = selection.true_shares(network.logits(members), members.labels)
      order = sure if self._selection == "surprise" else -sure
      return np.argsort(order, kind="stable")[:count]
    return selection.random_order(len(members), seed)[:count]

  def _as_chief(self, chosen: np.ndarray) -> np.ndarray:
    """What the chief has chosen, on all workers."""
    team = self._memory.setting.team
    return team.gather(chosen if team.is_chief else chosen[:0])

  def encode(
    self,
    task: Task,
    chosen: np.ndarray,
    images: np.ndarray,
    quality: int | None = None,
  ) -> EncodedImages:
    """New exemplars, and a few new images that only test.

    Args:
      task: the step.
      chosen: indices of the new exemplars, int64 [m].
      images: the new exemplars, uint8 [m, h, w, 3].
      quality: of their files, for formats that have one.
    """
    new = EncodedImages(
      image_formats.encode(images, self._kind, quality),
      task.new.labels[chosen],
      side=self._side(task, chosen),
    )
    if task.held_out is None or not len(task.held_out):
      return new
    tests = self._encode_held_out(task.held_out, quality)
    return EncodedImages.join([new, tests])

  def _side(self, task: Task, chosen: np.ndarray) -> list[bytes] | None:
    """What is kept with each new exemplar; None is nothing."""

  def _encode_held_out(
    self, examples: Examples, quality: int | None
  ) -> EncodedImages:
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
      image_formats.encode(images, self._kind, quality),
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
      most: see `first`; None is as many as there are.

    Returns:
      The part of the manifest, and how many images did not fit.
    """
    wanted = images if most is None else self.first(images, most)
    kept = self.within(wanted, room)
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
    return part, len(wanted) - len(kept)

  def most(self, classes: int) -> int | None:
    """How many may be kept of so many classes; None leaves it to `choose`."""

  def least(self, images: EncodedImages) -> EncodedImages:
    """The fewest images that a byte budget must hold: one of each class."""
    return self.first(images, 1)

  def within(self, images: EncodedImages, room: float) -> EncodedImages:
    """As many images of each class as fit into so many bytes."""
    if file_bytes(images) <= room:
      return images
    low, high = 0, self._largest(images)
    while high - low > 1:
      middle = (low + high) // 2
      fits = file_bytes(self.first(images, middle)) <= room
      low, high = (middle, high) if fits else (low, middle)
    return self.first(images, low)

  def _largest(self, images: EncodedImages) -> int:
    """The largest count for which `first` gives up any image."""
    return int(np.bincount(images.labels).max())

  def first(self, images: EncodedImages, count: int) -> EncodedImages:
    """The first images of each class; a tenth as many that only test."""
    places = np.zeros(len(images), np.int64)
    for mark in (False, True):
      for label in np.unique(images.labels):
        members = (images.labels == label) & (images.held_out == mark)
        places[members] = np.arange(members.sum())
    most = np.where(images.held_out, -(-count // 10), count)
    return images.take(places < most)


def without(images: EncodedImages, label: int) -> EncodedImages:
  """The images of all other classes, whose later labels move up by one."""
  kept = images.take(images.labels != label)
  labels = np.where(kept.labels > label, kept.labels - 1, kept.labels)
  return dataclasses.replace(kept, labels=labels.astype(np.int32))
