"""A few images of each class, as a rule losslessly compressed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.examples import Examples, concatenate, in_memory, take
from ibdrr_tf.data.task import Task
from ibdrr_tf.evaluation.recalled import Recalled
from ibdrr_tf.replay import image_formats, selection
from ibdrr_tf.replay.image_store import EncodedImages, ImageStore, file_bytes
from ibdrr_tf.replay.memory import Embeds, Memory, Setting, first_of

__all__ = ["ExemplarMemory", "Exemplars", "Plan"]

# Images of a class that are encoded to guess the size of one, and how far that
# guess may be wrong.
_SAMPLE = 16
_CAUTION = 1.1

# No plan has a higher quality.
_FINE = 95
# How logits are kept.
_LOGITS = "<f2"

# Changes chosen images before they are kept: (memory, task, network, images
# uint8 [n, h, w, 3], labels int32 [n]) -> images.
Refine = Callable[
  ["ExemplarMemory", Task, Embeds, np.ndarray, np.ndarray], np.ndarray
]


class Plan(NamedTuple):
  """How many new exemplars a class gets, and of what quality.

  Attributes:
    count: images of a class, before a byte budget leaves fewer.
    quality: 0 to 100, for formats that have one.
  """

  count: int | None = None
  quality: int | None = None


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
      image_formats.encode(images, self._kind, quality), task.new.labels[chosen]
    )
    if task.held_out is None or not len(task.held_out):
      return new
    tests = self._encode_held_out(task.held_out, quality)
    return EncodedImages.join([new, tests])

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
      most: images of a class, at most; None is as many as there are.

    Returns:
      The part of the manifest, and how many images were given up.
    """
    kept = images if most is None else self.first(images, most)
    kept = self.within(kept, room)
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

  def within(self, images: EncodedImages, room: float) -> EncodedImages:
    """As many images of each class as fit into so many bytes."""
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
  """Some images of each class.

  Args:
    setting: where and how.
    step: see `Memory`.
    selected: see `Exemplars`.
    refine: changes new exemplars before they are kept; None leaves them.
    learned: what a step learns from: "all" are exemplars and new images; "new"
      are the new images, for methods that draw exemplars as a second stream;
      "kept" are the exemplars that there will be after the step, which must be
      selected without a network.
    keeps_logits: whether each exemplar has the logits that the network of its
      step gave it.
    kind: format of the files, a key of `image_formats.FORMATS`.
    plan: how many new images to keep, and at what quality; None is as many as
      configured, for formats without a quality.
  """

  def __init__(
    self,
    setting: Setting,
    step: int | None = -1,
    *,
    selected: str | None = None,
    refine: Refine | None = None,
    learned: str = "all",
    keeps_logits: bool = False,
    kind: str = "lossless",
    plan: Callable[[ExemplarMemory, Task, Embeds], Plan] | None = None,
  ):
    super().__init__(setting, step)
    self.kind = kind
    self.exemplars = Exemplars(self, selected, fills=True, kind=kind)
    self._plan = plan
    self._refine = refine
    self._learned = learned
    self._keeps_logits = keeps_logits

  @property
  def room(self) -> float:
    """Bytes that the byte budget leaves for images; infinite without one."""
    return self._room()

  def examples(self, task: Task) -> Examples:
    """What a step learns from; exemplars alone if there are no new images."""
    if self.config.memory.total_bytes:
      self._check_room(task)
    if self._learned == "kept":
      kept = self.exemplars.within(self._with_new(task, None), self._room())
      return in_memory(*self.exemplars.decode(kept.take(~kept.held_out)))
    if self._learned == "new" and len(task.new):
      return task.new
    return concatenate([in_memory(*self.exemplars.read()), task.new])

  def sample(self, labels: Sequence[int], each: int) -> Recalled | None:
    """Decodes the first exemplars of each class."""
    kept = self.exemplars.store.read()
    some = kept.take(first_of(kept.labels, labels, each))
    if not len(some):
      return None
    images, of_images = self.exemplars.decode(some)
    return Recalled(of_images, images, None, kept.bytes_by_label())

  def logits(self, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Kept logits of the images that `exemplars.read` gives, in its order.

    Args:
      classes: number of classes.

    Returns:
      float32 [n, classes], and whether each is known, bool [n, classes]: an
      image has none for classes that came after it.
    """
    kept = self.exemplars.store.read()
    side = kept.take(~kept.held_out).side
    values = np.zeros([len(side), classes], np.float32)
    known = np.zeros(values.shape, bool)
    for row, data in enumerate(side):
      logits = np.frombuffer(data, _LOGITS)
      values[row, : len(logits)] = logits
      known[row, : len(logits)] = True
    return values, known

  def add(self, task: Task, network: Embeds) -> None:
    """Keeps exemplars of the new images too."""
    self._write(task.step, self._with_new(task, network))

  def _with_new(self, task: Task, network: Embeds | None) -> EncodedImages:
    """Exemplars in force, and after them those of the new images."""
    plan = Plan()
    if self._plan and len(task.new):
      plan = self._plan(self, task, network)
    chosen = self.exemplars.choose(task, network, plan.count)
    images = task.new.read(tf.constant(chosen)).numpy()
    if self._refine:
      images = self._refine(
        self, task, network, images, task.new.labels[chosen]
      )
    added = self.exemplars.encode(task, chosen, images, plan.quality)
    if self._keeps_logits:
      logits = network.logits(take(task.new, chosen)).astype(_LOGITS)
      side = [row.tobytes() for row in logits]
      added.side[: len(side)] = side  # Those that only test come after.
    return EncodedImages.join([self.exemplars.store.read(), added])

  def forget(self, step: int, label: int) -> None:
    """Keeps the exemplars of the other classes."""
    self._write(step, without(self.exemplars.store.read(), label))

  def _check_room(self, task: Task) -> None:
    """Refuses a hopeless byte budget before training: one image of a class.

    Which image will be chosen is not known yet: the largest of some stands for
    it, and a little more.
    """
    quality = _FINE if self._plan else None
    chosen = [np.zeros(0, np.int64)]
    for label in np.unique(task.new.labels):
      members = np.flatnonzero(task.new.labels == label)[:_SAMPLE]
      images = task.new.read(tf.constant(members)).numpy()
      sizes = map(len, image_formats.encode(images, self.kind, quality))
      chosen.append(members[[int(np.argmax(list(sizes)))]])
    chosen = np.concatenate(chosen)
    images = task.new.read(tf.constant(chosen)).numpy()
    added = self.exemplars.encode(task, chosen, images, quality)
    if self._keeps_logits:
      size = task.classes * np.dtype(_LOGITS).itemsize
      added.side[: len(chosen)] = [bytes(size)] * len(chosen)
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
  width = np.dtype(_LOGITS).itemsize
  side = [s[: label * width] + s[(label + 1) * width :] for s in kept.side]
  return dataclasses.replace(kept, labels=labels.astype(np.int32), side=side)
