"""What a method keeps from one step to the next: the frame of all memories.

    examples(task) ─► training ─► add(task, network) ─► commit ─► settle()

`examples` joins what is remembered with the new images. `add` writes files
beside those in force. They count once the owner of the memory has committed the
step; `settle` then removes the others. A process may be killed anywhere in
between: the owner opens the memory at the step that it has committed.
"""

import abc
import dataclasses
import math
import pathlib
from collections.abc import Sequence
from typing import Any, Protocol

import ml_collections
import numpy as np

from ibdrr_tf.data.examples import Examples
from ibdrr_tf.data.task import Task
from ibdrr_tf.distribution import ALONE, Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation.recalled import Recalled
from ibdrr_tf.replay.codec import ReplayCodec
from ibdrr_tf.replay.manifest import MemoryFolder

__all__ = [
  "Embeds",
  "Memory",
  "NoMemory",
  "Setting",
  "alike",
  "first_of",
  "keep_alike",
]

# A manifest names files and sums. With a byte budget it has room for so many
# bytes, and a part for so many files.
_MANIFEST_BYTES = 1000
_MOST_FILES = 6
# Of the images that a class keeps under a byte budget, so many only test.
_HELD_OUT_SHARE = 0.1


class Embeds(Protocol):
  """A trained network, as far as a memory looks at it."""

  def features(self, examples: Examples) -> np.ndarray:
    """Features of each example, without augmentation: float32 [n, d]."""

  def logits(self, examples: Examples) -> np.ndarray:
    """Outputs before the softmax, without augmentation: [n, classes]."""

  def outputs(self, layer: str, examples: Examples) -> np.ndarray:
    """Outputs of a layer for each example, without augmentation: float32."""


@dataclasses.dataclass(frozen=True)
class Setting:
  """Where a memory lives, and by which rules.

  Attributes:
    config: the whole configuration; `memory`, `replay` and `seed` matter.
    path: folder of the memory.
    image_shape: (height, width, 3) of all images.
    codec: for memories that keep codes.
    team: the workers that share the memory.
  """

  config: ml_collections.ConfigDict
  path: pathlib.Path
  image_shape: tuple[int, int, int]
  codec: ReplayCodec | None = None
  team: Team = ALONE


class Memory(abc.ABC):
  """Files of a step, and what a later step makes of them.

  Args:
    setting: where and how.
    step: the committed step whose memory this is; -1 for an empty one, None
      for the newest.

  Attributes:
    uses_codec: whether it needs the codec of its setting.
    dropped: images that the last `add` gave up to hold the byte budget.
    detail: of codes in force, 0 to 100; see `replay.detail`.
  """

  uses_codec = False
  detail = 100

  def __init__(self, setting: Setting, step: int | None = -1):
    self.setting = setting
    self.config = setting.config
    self.folder = MemoryFolder(setting.path, step, setting.team)
    self.dropped = 0

  @property
  def step(self) -> int:
    """The step whose memory this is; -1 before the first."""
    return self.folder.step

  @abc.abstractmethod
  def examples(self, task: Task) -> Any:
    """What to train on: remembered images and new ones; `Examples` or a feed.

    Images that only test are left out.
    """

  @abc.abstractmethod
  def add(self, task: Task, network: Embeds) -> None:
    """Writes the memory of a step, new images included."""

  def forget(self, step: int, label: int) -> None:
    """Writes the memory of a step without a class; later labels move up."""
    self.folder.write(step, {})

  def held_out(self) -> Examples | None:
    """Remembered images that only test, as memory gives them back."""
    return None

  def sample(self, labels: Sequence[int], each: int) -> Recalled | None:
    """Some images of some classes, decoded from the files, to be looked at.

    It shares no work: one worker may call it alone.

    Args:
      labels: of the classes.
      each: at most so many images of each class.

    Returns:
      None if memory keeps no images.
    """
    return None

  def stored_bytes(self) -> dict[str, int]:
    """Bytes kept, by the ledger's names, and `images`."""
    return {"index": self.folder.manifest_bytes, "images": 0}

  def _coded_bytes(
    self, codes: dict[str, Any], models: dict[str, Any]
  ) -> dict[str, int]:
    """Bytes of a memory of codes and of the models that decode them.

    Args:
      codes: the part of the manifest with `payload`, `images` and `files`.
      models: the part of the models.
    """
    files, payload = sum(codes["files"].values()), codes["payload"]
    return {
      "payload": payload,
      "index": self.folder.manifest_bytes + files - payload,
      "other_models": sum(models["files"].values()),
      "images": codes["images"],
    }

  def settle(self) -> None:
    """Removes what does not belong to the step in force."""
    self.folder.settle()

  def _too_small(self, least: float) -> UserError:
    """The error for a byte budget that holds no image of each class.

    Args:
      least: bytes that would do.
    """
    return UserError(
      f"a memory of {self.config.memory.total_bytes} bytes is too small: "
      f"{math.ceil(least)} would do."
    )

  def _check_least(self, least: float, fixed: int = 0) -> None:
    """Refuses a byte budget that has no room for one image of each class.

    Args:
      least: bytes of these images.
      fixed: see `_room`.
    """
    room = self._room(fixed)
    if least > room:
      raise self._too_small(self.config.memory.total_bytes - room + least)

  def may_append(self, contents: dict[str, Any]) -> bool:
    """Whether a part of the manifest may have one more file."""
    limited = self.config.memory.total_bytes > 0
    return not limited or len(contents["files"]) < _MOST_FILES

  def _room(self, fixed: int = 0) -> float:
    """Bytes that the byte budget leaves for images; infinite without one.

    Args:
      fixed: bytes that are taken in any case, besides the manifest.
    """
    limit = self.config.memory.total_bytes
    return limit - fixed - _MANIFEST_BYTES if limit else float("inf")


class NoMemory(Memory):
  """Keeps nothing: a step sees its new images only."""

  def examples(self, task: Task) -> Examples:
    """The new images."""
    return task.new

  def add(self, task: Task, network: Embeds) -> None:
    """Writes down that nothing is kept."""
    self.folder.write(task.step, {})


def first_of(
  labels: np.ndarray, wanted: Sequence[int], each: int
) -> np.ndarray:
  """Indices of the first images of some classes: int64 [m], sorted.

  Args:
    labels: int [n].
    wanted: labels of the classes.
    each: at most so many of each class.
  """
  found = [np.flatnonzero(labels == label)[:each] for label in wanted]
  return np.sort(np.concatenate([np.zeros(0, np.int64), *found]))


def keep_alike(
  labels: np.ndarray,
  held_out: np.ndarray,
  count: int,
  seed: tuple[int, ...],
  first: np.ndarray | None = None,
) -> np.ndarray:
  """Which images stay if each class may keep so many.

  Args:
    labels: int [n].
    held_out: bool [n]; a tenth of `count`, at least one, of these stay too.
    count: images of a class that are learned from.
    seed: which images stay is a function of this alone.
    first: bool [n], images that stay before any other, in their order; None
      is none.

  Returns:
    int64 [m], sorted.
  """
  if first is None:
    first = np.zeros(len(labels), bool)
  kept = [np.zeros(0, np.int64)]
  for mark, most in (
    (False, count),
    (True, _held_out_count(count)),
  ):
    for label in np.unique(labels[held_out == mark]):
      members = np.flatnonzero((labels == label) & (held_out == mark))
      generator = np.random.default_rng((*seed, int(label), int(mark)))
      early, rest = members[first[members]], members[~first[members]]
      order = np.concatenate([early, generator.permutation(rest)])
      kept.append(order[:most])
  return np.sort(np.concatenate(kept)).astype(np.int64)


def alike(labels: np.ndarray, held_out: np.ndarray, wanted: float) -> int:
  """The largest `count` for which `keep_alike` keeps at most `wanted` images.

  It is at least 1.
  """
  sizes = np.bincount(labels[~held_out])
  tests = np.bincount(labels[held_out]) if held_out.any() else np.zeros(1, int)

  def kept(count: int) -> int:
    return int(
      np.minimum(sizes, count).sum()
      + np.minimum(tests, _held_out_count(count)).sum()
    )

  low, high = 1, int(sizes.max(initial=1)) + 1
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (middle, high) if kept(middle) <= wanted else (low, middle)
  return low


def _held_out_count(count: int) -> int:
  return max(1, round(_HELD_OUT_SHARE * count))
