"""Every image as a file: WebP, JPEG, or its pixels."""

import dataclasses
from typing import Any

import numpy as np

from ibdrr_tf.data.examples import Examples, in_memory, ordered_batches, take
from ibdrr_tf.data.task import Task
from ibdrr_tf.replay import image_formats
from ibdrr_tf.replay.feeds import ImageFeed
from ibdrr_tf.replay.file_memory import FileMemory
from ibdrr_tf.replay.image_store import EncodedImages, file_bytes
from ibdrr_tf.replay.memory import Embeds, Setting, keep_alike
from ibdrr_tf.replay.replayed_memory import order_of

__all__ = ["ImageMemory", "by_class", "read_all"]

_BATCH = 500


@dataclasses.dataclass(frozen=True)
class _Plan:
  """All images of a step as they will be kept.

  Attributes:
    task: the step; its images are sorted by class.
    quality: of all of them; None for formats without one.
    old: those in force.
    new: those of `task.new`, in its order.
    held_out: those of `task.held_out`, in its order.
  """

  task: Task
  quality: int | None
  old: EncodedImages
  new: EncodedImages
  held_out: EncodedImages

  def all(self) -> EncodedImages:
    return EncodedImages.join([self.old, self.new, self.held_out])


class ImageMemory(FileMemory):
  """All images seen, each as a file of its own.

  New images too are seen as they will be remembered. All have one quality,
  `memory.quality`, or with a byte budget the highest of `QUALITIES` at which
  they fit: when more images come, those that are there are encoded again. At
  the coarsest quality, images of all classes alike are given up.

  Args:
    setting: where and how.
    step: see `Memory`.
    kind: a key of `image_formats.FORMATS`.
    raw: see `ReplayedMemory`.
  """

  def __init__(
    self,
    setting: Setting,
    step: int | None = -1,
    *,
    kind: str,
    raw: str | None = None,
  ):
    super().__init__(setting, step, kind, raw=raw)
    self._kind = kind
    if kind == "pixels":
      self._line = "raw_exemplars"
    self._plan: tuple[Task, _Plan] | None = None

  def examples(self, task: Task) -> ImageFeed:
    """Decoded images: those remembered, then the new ones, class by class."""
    plan = self._planned(task)
    everything = plan.all()
    marks = (everything.labels, everything.held_out)
    first = self._with_twins(*marks)
    one = everything.take(keep_alike(*marks, 1, (self.config.seed,), first))
    # A hopeless byte budget is refused before training.
    self._check_least(file_bytes(one))
    old = plan.old.take(~plan.old.held_out)
    images = EncodedImages.join([old, plan.new])
    return ImageFeed(
      self._decode(images),
      images.labels,
      twins=self._twins(plan.task, images.labels),
      raw_share=self.config.replay.raw_share,
    )

  def add(self, task: Task, network: Embeds) -> None:
    """Keeps the new images too."""
    plan = self._planned(task)
    chosen = self._choose_exemplars(plan.task, network)
    new = plan.new.take(order_of(plan.task.new, chosen))
    plan = dataclasses.replace(plan, new=new)
    part, most = self._write(task.step, plan)
    self._commit(plan.task, part, chosen, most)
    self._plan = None

  def held_out(self) -> Examples | None:
    """Decoded images that only test."""
    images = self._store.read()
    images = images.take(images.held_out)
    if not len(images):
      return None
    return in_memory(self._decode(images), images.labels)

  def _write(self, step: int, plan: _Plan) -> tuple[dict[str, Any], int]:
    """Writes the images of a plan, or as many of them as fit.

    Returns:
      The part of the manifest, and how many images of a class may stay.
    """
    images, room, contents = plan.all(), self._room(), self._store.contents
    kept, most = self._fewer(
      images.labels,
      images.held_out,
      lambda kept: file_bytes(images.take(kept)),
      file_bytes(images),
      room,
    )
    added = EncodedImages.join([plan.new, plan.held_out])
    if (
      not self.dropped
      and plan.quality == self.quality
      # A class in two files needs more bytes than in one.
      and sum(contents["files"].values()) + file_bytes(added) <= room
      and self.may_append(contents)
    ):
      part = self._store.append(step, added)
    else:
      part = self._store.replace(step, images.take(kept))
    if plan.quality is not None:
      part = {**part, "quality": plan.quality}
    return part, most

  def _labels(self) -> np.ndarray:
    """Labels of remembered images to learn from, int32 [n]."""
    images = self._store.read()
    return images.labels[~images.held_out]

  def _planned(self, task: Task) -> _Plan:
    """Encodes the images of a step, once."""
    if self._plan is None or self._plan[0] is not task:
      self._plan = (task, self._make_plan(by_class(task)))
    return self._plan[1]

  def _make_plan(self, task: Task) -> _Plan:
    quality = None
    if self._kind != "pixels":
      quality = self.wanted_quality
    new, held_out = self._read(task.new), self._read(task.held_out)
    old = self._store.read()
    if self.config.memory.total_bytes and quality is not None:
      return self._finest(task, old, new, held_out)
    return self._at(quality, task, old, new, held_out)

  def _finest(self, task, old, new, held_out) -> _Plan:
    """The plan of the highest quality that fits, else of the lowest."""
    room = self._room(self._guess_exemplars(task))
    return image_formats.finest(
      self.ladder(),
      lambda quality: self._at(quality, task, old, new, held_out),
      lambda plan: file_bytes(plan.all()) <= room,
    )

  def _at(self, quality, task, old, new, held_out) -> _Plan:
    """All images at a quality; those in force stay if they have it already."""
    if quality != self.quality and len(old):
      decoded = self._decode(old)
      encoded = image_formats.encode(decoded, self._kind, quality)
      old = EncodedImages(encoded, old.labels, old.held_out)
    return _Plan(
      task,
      quality,
      old,
      EncodedImages(
        image_formats.encode(new, self._kind, quality), task.new.labels
      ),
      EncodedImages(
        image_formats.encode(held_out, self._kind, quality),
        task.held_out.labels if len(held_out) else np.zeros(0, np.int32),
        np.ones(len(held_out), bool),
      ),
    )

  def _decode(self, images: EncodedImages) -> np.ndarray:
    return image_formats.decode(
      images.images, self._kind, self.setting.image_shape
    )

  def _open(self, encoded: EncodedImages) -> tuple[np.ndarray, np.ndarray]:
    """Images of files, uint8 [n, h, w, 3], and their labels, int32 [n]."""
    return self._decode(encoded), encoded.labels

  def _read(self, examples: Examples | None) -> np.ndarray:
    """All images of some examples: uint8 [n, h, w, 3]."""
    if examples is None:
      return np.zeros([0, *self.setting.image_shape], np.uint8)
    return read_all(examples)


def read_all(examples: Examples) -> np.ndarray:
  """All images of some examples: uint8 [n, h, w, 3]."""
  nothing = np.zeros([0, *examples.image_shape], np.uint8)
  batches = ordered_batches(examples, _BATCH).as_numpy_iterator()
  return np.concatenate([nothing, *batches])


def by_class(task: Task) -> Task:
  """The same step with its images sorted by class."""

  def in_order(examples: Examples | None) -> Examples | None:
    if examples is None:
      return None
    return take(examples, np.argsort(examples.labels, kind="stable"))

  return dataclasses.replace(
    task, new=in_order(task.new), held_out=in_order(task.held_out)
  )
