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
from ibdrr_tf.replay.exemplars import Exemplars, without
from ibdrr_tf.replay.image_store import EncodedImages, file_bytes
from ibdrr_tf.replay.memory import Embeds, Memory, Setting, first_of
from ibdrr_tf.replay.reservoir import Reservoir

__all__ = ["ExemplarMemory", "Plan"]

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


class ExemplarMemory(Memory):
  """Some images of each class.

  Args:
    setting: where and how.
    step: see `Memory`.
    selected: see `Exemplars`; "distribution" is a reservoir.
    random: what `memory.selection=random` means; "distribution" for methods
      whose authors have a reservoir.
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
    random: str = "random",
    refine: Refine | None = None,
    learned: str = "all",
    keeps_logits: bool = False,
    kind: str = "lossless",
    plan: Callable[[ExemplarMemory, Task, Embeds], Plan] | None = None,
  ):
    super().__init__(setting, step)
    self.kind = kind
    selected = selected or setting.config.memory.selection
    if selected == "random":
      selected = random
    make = Reservoir if selected == "distribution" else Exemplars
    self.exemplars = make(self, selected, fills=True, kind=kind)
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

  def replayed(self) -> tuple[np.ndarray, np.ndarray]:
    """Images to learn from, uint8 [n, h, w, 3], and their labels, int32 [n]."""
    return self.exemplars.read()

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
    images = self._with_new(task, network)
    self._write(task.step, images, self.exemplars.most(task.classes))

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
    images = without(self.exemplars.store.read(), label)
    if self._keeps_logits:
      width = np.dtype(_LOGITS).itemsize
      cut, end = label * width, (label + 1) * width
      side = [logits[:cut] + logits[end:] for logits in images.side]
      images = dataclasses.replace(images, side=side)
    self._write(step, images)

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
    one = self.exemplars.least(EncodedImages.join([old, added]))
    self._check_least(_CAUTION * file_bytes(one))

  def _write(
    self, step: int, images: EncodedImages, most: int | None = None
  ) -> None:
    self._check_least(file_bytes(self.exemplars.least(images)))
    room = self._room()
    part, self.dropped = self.exemplars.write(step, images, room, most)
    self.folder.write(step, {self.exemplars.store.part: part, **self._parts()})

  def _parts(self) -> dict[str, dict[str, Any]]:
    """Other parts of the manifest."""
    return {}

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
