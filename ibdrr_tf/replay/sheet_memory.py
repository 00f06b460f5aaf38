"""Every image on a contact sheet of its class: AVIF or WebP."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import image_formats, sheets
from ibdrr_tf.replay.feeds import ImageFeed
from ibdrr_tf.replay.file_memory import FileMemory
from ibdrr_tf.replay.image_memory import by_class, read_all
from ibdrr_tf.replay.image_store import EncodedImages, file_bytes
from ibdrr_tf.replay.memory import Embeds, Setting, keep_alike
from ibdrr_tf.replay.replayed_memory import order_of

__all__ = ["SheetMemory"]

# A picture that is encoded again loses more the nearer its qualities are. One
# sheet of 500 images of CIFAR-100 at quality 40 has 26.8 dB in 101 bytes an
# image; encoded before at 60, 26.4; at 60 and 50, 25.6; in steps of 4 from 60
# on, 22.9 in 144 bytes. So a quality falls by at least the first number, and by
# multiples of the second below that.
_DROP, _RUNG = 12, 3


@dataclasses.dataclass(frozen=True)
class _Images:
  """Decoded images of a step, sorted as they are kept.

  Attributes:
    images: uint8 [n, h, w, 3].
    labels: int32 [n].
    held_out: bool [n].
  """

  images: np.ndarray
  labels: np.ndarray
  held_out: np.ndarray

  def take(self, chosen: np.ndarray) -> _Images:
    return _Images(
      self.images[chosen], self.labels[chosen], self.held_out[chosen]
    )


@dataclasses.dataclass(frozen=True)
class _Plan:
  """A step as it will be kept.

  Attributes:
    task: the step; its images are sorted by class.
    quality: of all sheets.
    old: those in force, encoded again where the quality changes.
    new: those of the new images that are learned from.
    held_out: those of the new images that only test.
  """

  task: Task
  quality: int
  old: EncodedImages
  new: EncodedImages
  held_out: EncodedImages

  def all(self) -> EncodedImages:
    return EncodedImages.join([self.old, self.new, self.held_out])


class SheetMemory(FileMemory):
  """All images seen, tiled into one picture for each class and step.

  New images too are seen as they will be remembered. All sheets have one
  quality, `memory.quality`, or with a byte budget the highest of `ladder` at
  which they fit: when more images come, those that are there are encoded again.
  At the coarsest quality, images of all classes alike are given up.

  Args:
    setting: where and how; `memory.sheet` is the format.
    step: see `Memory`.
    raw: see `ReplayedMemory`.
  """

  def __init__(
    self, setting: Setting, step: int | None = -1, *, raw: str | None = None
  ):
    super().__init__(setting, step, "sheets", raw=raw)
    self._kind = setting.config.memory.sheet
    self._plan: tuple[Task, _Plan] | None = None
    kept = self._store.contents.get("kind", self._kind)
    if kept != self._kind:
      raise UserError(
        f"the memory {self.folder.path} has {kept} sheets: give "
        f"--config.memory.sheet={kept}."
      )

  def ladder(self) -> list[int]:
    """The quality in force, then those that are well below it."""
    if self.quality is None:
      return super().ladder()
    lower = range(self.quality - _DROP, 0, -_RUNG)
    return list(dict.fromkeys([self.quality, *lower, 0]))

  def examples(self, task: Task) -> ImageFeed:
    """Decoded images: those remembered, then the new ones, class by class."""
    plan = self._planned(task)
    self._check_room(plan)
    old = plan.old.take(~plan.old.held_out)
    kept = self._decode(EncodedImages.join([old, plan.new]))
    return ImageFeed(
      kept.images,
      kept.labels,
      twins=self._twins(plan.task, kept.labels),
      raw_share=self.config.replay.raw_share,
    )

  def add(self, task: Task, network: Embeds) -> None:
    """Keeps the new images too."""
    plan = self._planned(task)
    chosen = self._choose_exemplars(plan.task, network)
    if len(chosen):  # They come first on the sheets of their classes.
      order = order_of(plan.task.new, chosen)
      new = _learned(read_all(plan.task.new), plan.task.new.labels)
      new = self._encode(new.take(order), plan.quality)
      plan = dataclasses.replace(plan, new=new)
    part, most = self._write(task.step, plan)
    self._commit(plan.task, part, chosen, most)
    self._plan = None

  def held_out(self) -> Examples | None:
    """Decoded images that only test."""
    kept = self._store.read()
    kept = self._decode(kept.take(kept.held_out))
    return in_memory(kept.images, kept.labels) if len(kept.labels) else None

  def _write(self, step: int, plan: _Plan) -> tuple[dict[str, Any], int]:
    """Writes the sheets of a plan, or of as many images as fit.

    Returns:
      The part of the manifest, and how many images of a class may stay.
    """
    everything, room = plan.all(), self._room()
    contents, most = self._store.contents, len(plan.task.new)
    self.dropped = 0
    if file_bytes(everything) > room:
      decoded = self._decode(everything)

      def of(kept: np.ndarray) -> EncodedImages:
        return self._encode(decoded.take(kept), plan.quality)

      kept, most = self._fewer(
        decoded.labels,
        decoded.held_out,
        lambda kept: file_bytes(of(kept)),
        file_bytes(everything),
        room,
      )
      everything = of(kept)
    added = EncodedImages.join([plan.new, plan.held_out])
    size = sum(contents["files"].values()) + file_bytes(added)
    if (
      not self.dropped
      and plan.quality == self.quality
      and size <= room
      and self.may_append(contents)
    ):
      part = self._store.append(step, added)
    else:
      part = self._store.replace(step, everything)
    return {**part, "quality": plan.quality, "kind": self._kind}, most

  def _check_room(self, plan: _Plan) -> None:
    """Refuses a hopeless byte budget before training."""
    everything = plan.all()
    if file_bytes(everything) <= self._room():
      return
    decoded = self._decode(everything)
    one = keep_alike(
      decoded.labels,
      decoded.held_out,
      1,
      (self.config.seed,),
      self._with_twins(decoded.labels, decoded.held_out),
    )
    self._check_least(file_bytes(self._encode(decoded.take(one), plan.quality)))

  def _labels(self) -> np.ndarray:
    """Labels of remembered images to learn from, int32 [n]."""
    kept = self._store.read()
    kept = kept.take(~kept.held_out)
    return np.repeat(kept.labels, kept.counts)

  def _planned(self, task: Task) -> _Plan:
    """Encodes the images of a step, once."""
    if self._plan is None or self._plan[0] is not task:
      self._plan = (task, self._make_plan(by_class(task)))
    return self._plan[1]

  def _make_plan(self, task: Task) -> _Plan:
    new = _learned(read_all(task.new), task.new.labels)
    held = task.held_out
    if held is None or not len(held):
      held_out = new.take(np.zeros(0, np.int64))
    else:
      marks = np.ones(len(held), bool)
      held_out = _Images(read_all(held), held.labels, marks)

    def at(quality: int) -> _Plan:
      old = self._store.read()
      if quality != self.quality and len(old):
        old = self._encode(self._decode(old), quality)
      sheets_ = (self._encode(part, quality) for part in (new, held_out))
      return _Plan(task, quality, old, *sheets_)

    if not self.config.memory.total_bytes:
      return at(self.wanted_quality)
    room = self._room(self._guess_exemplars(task))
    return image_formats.finest(
      self.ladder(), at, lambda plan: file_bytes(plan.all()) <= room
    )

  def _encode(self, kept: _Images, quality: int) -> EncodedImages:
    """Sheets of each class, those that only test apart."""
    data, labels, held_out, counts = [], [], [], []
    for mark in (False, True):
      for label in np.unique(kept.labels[kept.held_out == mark]):
        chosen = (kept.labels == label) & (kept.held_out == mark)
        for sheet in sheets.encode(kept.images[chosen], self._kind, quality):
          data.append(sheet.data)
          labels.append(label)
          held_out.append(mark)
          counts.append(sheet.count)
    return EncodedImages(
      data,
      np.array(labels, np.int32),
      np.array(held_out, bool),
      np.array(counts, np.int32),
    )

  def _open(self, encoded: EncodedImages) -> tuple[np.ndarray, np.ndarray]:
    """Images of sheets, uint8 [n, h, w, 3], and their labels, int32 [n]."""
    decoded = self._decode(encoded)
    return decoded.images, decoded.labels

  def _decode(self, encoded: EncodedImages) -> _Images:
    pairs = zip(encoded.images, encoded.counts.tolist(), strict=True)
    return _Images(
      sheets.decode(
        [sheets.Sheet(*pair) for pair in pairs],
        self._kind,
        self.setting.image_shape,
      ),
      np.repeat(encoded.labels, encoded.counts),
      np.repeat(encoded.held_out, encoded.counts),
    )


def _learned(images: np.ndarray, labels: np.ndarray) -> _Images:
  """Images that are learned from."""
  return _Images(images, labels, np.zeros(len(labels), bool))
