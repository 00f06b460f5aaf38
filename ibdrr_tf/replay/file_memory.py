"""What memories of lossy files share: images one by one, or on sheets."""

import abc
from collections.abc import Sequence
from typing import Any

import numpy as np

from ibdrr_tf.data.task import Task
from ibdrr_tf.evaluation.recalled import Recalled
from ibdrr_tf.replay import image_formats
from ibdrr_tf.replay.exemplars import without
from ibdrr_tf.replay.image_store import EncodedImages, ImageStore
from ibdrr_tf.replay.memory import Setting, first_of
from ibdrr_tf.replay.replayed_memory import ReplayedMemory

__all__ = ["FileMemory"]


class FileMemory(ReplayedMemory):
  """Keeps files of images in one part of the manifest.

  Args:
    setting: where and how.
    step: see `Memory`.
    part: name of the part.
    raw: see `ReplayedMemory`.
  """

  # Where the ledger counts the images' own bytes.
  _line = "payload"
  # Qualities that a byte budget steps down, from good to coarse.
  _qualities = image_formats.QUALITIES

  def __init__(
    self, setting: Setting, step: int | None, part: str, *, raw: str | None
  ):
    super().__init__(setting, step, raw=raw)
    self._store = ImageStore(self.folder, part)

  @property
  def quality(self) -> int | None:
    """Quality of the stored images; None without any, and for raw pixels."""
    return self._store.contents.get("quality")

  @property
  def wanted_quality(self) -> int:
    """Quality of all images without a byte budget; it never rises."""
    wanted = self.config.memory.quality
    return wanted if self.quality is None else min(self.quality, wanted)

  def ladder(self) -> list[int]:
    """Qualities that images may have within a byte budget, the best first."""
    if self.quality is None:
      return list(self._qualities)
    return [self.quality, *(q for q in self._qualities if q < self.quality)]

  def forget(self, step: int, label: int) -> None:
    """Keeps the images of the other classes."""
    contents = self._store.contents
    part = self._store.replace(step, without(self._store.read(), label))
    parts = {self._store.part: {**contents, **part}}
    if self.raw == "exemplars":
      raw = without(self._exemplars.store.read(), label)
      parts["exemplars"] = self._exemplars.store.replace(step, raw)
    self.folder.write(step, parts)

  def sample(self, labels: Sequence[int], each: int) -> Recalled | None:
    """Decodes the first files of each class."""
    kept = self._store.read()
    some = kept.take(first_of(kept.labels, labels, each))
    if not len(some):
      return None
    images, of_images = self._open(some)
    places = first_of(of_images, labels, each)
    return Recalled(
      of_images[places], images[places], None, kept.bytes_by_label()
    )

  @abc.abstractmethod
  def _open(self, encoded: EncodedImages) -> tuple[np.ndarray, np.ndarray]:
    """Images of files, uint8 [n, h, w, 3], and their labels, int32 [n]."""

  def stored_bytes(self) -> dict[str, int]:
    """The images' own bytes, and those of the files that hold them."""
    stored, contents = super().stored_bytes(), self._store.contents
    index = sum(contents["files"].values()) - contents["payload"]
    return {
      **stored,
      self._line: contents["payload"],
      "index": stored["index"] + index,
      "images": contents["images"],
    }

  def _commit(
    self, task: Task, part: dict[str, Any], chosen: np.ndarray, most: int
  ) -> None:
    """Writes the manifest of a step, and its exemplars.

    Args:
      task: the step.
      part: of the manifest, with the files that were written.
      chosen: indices of new images to keep raw.
      most: how many images of a class may stay.
    """
    parts = {self._store.part: part}
    if self.raw == "exemplars":
      room = self._room(sum(part["files"].values()))
      raw = self._all_exemplars(task, chosen)
      parts["exemplars"], _ = self._exemplars.write(task.step, raw, room, most)
    self.folder.write(task.step, parts)
