"""Every image as a bit-string: the memory of Discrete Representation Replay.

Section 4 of the paper. The codec's lossy stage is frozen. Its lossless stage is
fine-tuned on all codes, which are then written anew; or new chains are appended
with the model that is there (`bitswap.refit`).
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.evaluation.recalled import Recalled
from ibdrr_tf.replay.code_blocks import CodeBlocks
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codec import coarsen_codes, decode_images
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.detail import FINEST, estimated_bytes, finest_detail
from ibdrr_tf.replay.exemplars import without
from ibdrr_tf.replay.feeds import CodeFeed, Feed
from ibdrr_tf.replay.image_store import EncodedImages
from ibdrr_tf.replay.memory import Embeds, Setting, first_of
from ibdrr_tf.replay.replayed_memory import ReplayedMemory, order_of
from ibdrr_tf.replay.stream_feed import StreamFeed

__all__ = ["CodeMemory"]

_GROWTH = 1.5
_CODE_BYTES = 2  # in RAM
# How far an estimate of bytes may be wrong; and what a chain adds, with its
# header and its record in a file, to those of its images and of their labels.
_CAUTION = 1.02
_CHAIN_BYTES, _LABEL_BYTES = 150, 1
# So much longer are bit-strings of a few images, which start a chain.
_FEW = 1.5


class CodeMemory(ReplayedMemory):
  """Codes of all images, as chains of bit-strings.

  All have one detail (see `replay.detail`): `memory.detail`, or with a byte
  budget the most at which they fit. When more images come, old codes are made
  coarser; that needs no image. At no detail at all, or without blank codes, raw
  exemplars go first, then images, of all classes alike.

  Codes whose arrays would exceed `data.ram_bytes` are *streamed*: training
  reads them from the disk in each epoch, and a step appends its codes with the
  model that is there. Nothing decodes all codes at once.

  Args:
    setting: with a codec.
    step: see `Memory`.
    raw: see `ReplayedMemory`.
  """

  uses_codec = True

  def __init__(
    self, setting: Setting, step: int | None = -1, *, raw: str | None = None
  ):
    super().__init__(setting, step, raw=raw)
    self._codec = setting.codec
    self._store = CodeStore(self.folder, self._codec.folder, self._codec.coder)
    self._new: tuple[Task, Codes] | None = None
    self._old: Codes | None = None
    self._blocks: CodeBlocks | None = None
    self._planned: tuple[Task, int] | None = None

  @property
  def detail(self) -> int:
    """Of the codes in force, 0 to 100; of an empty memory, what it may be."""
    return self._store.contents.get("detail", self.config.memory.detail)

  def read(self) -> Codes:
    """All codes that are remembered; decoded once a step."""
    if self._old is None:
      self._old = self._store.read()
    return self._old

  def examples(self, task: Task) -> Feed:
    """Reconstructions of remembered images, and of the new ones."""
    if self.config.memory.total_bytes:
      self._check_room(task)
    codes = self._coarser(self._encoded(task), self._plan_detail(task))
    if self._is_streamed(codes.count):
      return self._stream(task, codes)
    if self.step >= 0 and self._store.contents["images"]:
      old = self._coarser(self.read(), self._plan_detail(task))
      codes = Codes.join([old.take(~old.held_out), codes])
    config = self.config.replay
    return CodeFeed(
      codes,
      self._codec.vqvae,
      self.setting.image_shape[:2],
      cache=config.cache,
      twins=self._twins(task, codes.labels),
      raw_share=config.raw_share,
    )

  def add(self, task: Task, network: Embeds) -> None:
    """Keeps the codes of the new images too.

    Where codes are streamed, the new ones are appended: Bit-Swap is fitted only
    if there is no model yet, whatever `bitswap.refit` says, and old chains stay
    as they are, unless a byte budget makes images go.
    """
    chosen = self._choose_exemplars(task, network)
    new = self._encoded(task).take(order_of(task.new, chosen))
    added = [new]
    if task.held_out is not None and len(task.held_out):
      held = self._codec.encode(task.held_out)
      held = held.take(np.argsort(held.labels, kind="stable"))
      marks = np.ones(len(held), bool)
      added.append(Codes(held.top, held.bottom, held.labels, marks))
    raw = None
    if self.raw == "exemplars":
      raw = self._all_exemplars(task, chosen)
    detail = self._plan_detail(task)
    added = self._coarser(Codes.join(added), detail)
    self._write(task.step, added, raw, detail)

  def forget(self, step: int, label: int) -> None:
    """Keeps the codes of the other classes."""
    codes = self._index() if self._is_streamed() else self.read()
    kept = np.flatnonzero(codes.labels != label)
    labels = np.where(codes.labels > label, codes.labels - 1, codes.labels)
    parts = {}
    if len(kept):
      part = self._replace(step, None, kept, None, labels.astype(np.int32))
      parts[self._store.PART] = {**part, **self._kept_detail(self.detail)}
    if self.raw == "exemplars":
      raw = without(self._exemplars.store.read(), label)
      store = self._exemplars.store
      parts[store.part] = store.replace(step, raw)
    self._commit(step, parts)

  def held_out(self) -> Examples | None:
    """Reconstructions of images that only test."""
    if not self._store.contents["images"]:
      return None
    if self._is_streamed():
      codes = self._index().held_out_codes()
    else:
      codes = self.read()
      codes = codes.take(codes.held_out)
    if codes is None or not len(codes):
      return None
    size = self.setting.image_shape[:2]
    return in_memory(
      decode_images(self._codec.vqvae, codes, size), codes.labels
    )

  def sample(self, labels: Sequence[int], each: int) -> Recalled | None:
    """Decodes the chains that hold the first images of each class."""
    if not self._store.contents["images"]:
      return None
    blocks = self._index()
    chosen = first_of(blocks.labels, labels, each)
    # What a step has just written is still in RAM.
    codes = self._old.take(chosen) if self._old else blocks.take(chosen)
    images = decode_images(
      self._codec.vqvae, codes, self.setting.image_shape[:2]
    )
    return Recalled(codes.labels, images, None, blocks.bytes_by_label())

  def stored_bytes(self) -> dict[str, int]:
    """Bit-strings, both stages of the codec, and exemplars."""
    stored, codes = super().stored_bytes(), self._store.stored_bytes()
    return {
      **stored,
      **codes,
      "index": stored["index"] + codes["index"],
      "codec_vqvae": self._codec.vqvae_bytes,
    }

  def settle(self) -> None:
    """Removes files, and an old model, that do not belong to the step."""
    self.folder.check()
    self._store.settle()
    super().settle()

  def _encoded(self, task: Task) -> Codes:
    """Codes of the new images, in their order; encoded once a step."""
    if self._new is None or self._new[0] is not task:
      self._new = (task, self._codec.encode(task.new))
    return self._new[1]

  def _coarser(self, codes: Codes, detail: int) -> Codes:
    return coarsen_codes(self._codec.vqvae, codes, detail)

  def _plan_detail(self, task: Task) -> int:
    """The detail of all codes in a step; what is trained on is what is kept."""
    if self._planned is None or self._planned[0] is not task:
      self._planned = (task, self._find_detail(task))
    return self._planned[1]

  def _check_room(self, task: Task) -> None:
    """Refuses a hopeless byte budget before training: one image of a class."""
    new = self._encoded(task)
    known = self._labels_and_marks(new)[0]
    # At no detail; one more of each class may only test.
    _, some = np.unique(new.labels, return_index=True)
    coarsest = 0 if self._codec.vqvae.bottom_quantizer.blank else self.detail
    codes = self._coarser(new.take(some), coarsest)
    mean = estimated_bytes(self._store.model(), codes) / max(len(codes), 1)
    count = 2 * len(np.unique(known))
    models = self._store.model_bytes(self._store.contents)
    chains = 1 + count // self.config.bitswap.chain_images
    self._check_least(
      count * (_FEW * mean + _LABEL_BYTES) + _CHAIN_BYTES * chains,
      self._codec.vqvae_bytes + math.ceil(_CAUTION * models),
    )

  def _find_detail(self, task: Task) -> int:
    new = self._encoded(task)
    limited = self.config.memory.total_bytes > 0
    if not limited or self._is_streamed(new.count):
      return min(self.detail, self.config.memory.detail)
    contents, model = self._store.contents, self._store.model()
    room = self._room(
      self._codec.vqvae_bytes
      + self._store.model_bytes(contents)
      + self._guess_exemplars(task)
    )
    everything = self._join_old(new, self.detail)
    # Images that only test are kept too; they are like the others.
    count = len(everything)
    if task.held_out is not None:
      count += len(task.held_out)
    share = count / max(len(everything), 1)
    chains = -(-count // self.config.bitswap.chain_images)
    room -= _CHAIN_BYTES * chains + _LABEL_BYTES * count
    return finest_detail(
      self._codec.vqvae,
      everything,
      lambda codes: _CAUTION * share * estimated_bytes(model, codes) <= room,
      self.detail,
    )

  def _kept_detail(self, detail: int) -> dict[str, int]:
    """What the manifest says of it; codecs without blank codes have none."""
    blank = self._codec.vqvae.bottom_quantizer.blank
    return {"detail": detail} if blank else {}

  def _fitted(
    self, step: int, added: Codes, detail: int
  ) -> BitSwapModel | None:
    """A model fine-tuned on all codes; None if the one there is will do."""
    model, refit = self._store.model(), self.config.bitswap.refit
    contents = self._store.contents
    count = contents["images"] + len(added)
    if model is not None and (
      refit == "never"
      or self._is_streamed(added.count)
      or (
        refit == "growth"
        and count < _GROWTH * contents["fitted"]
        and detail == self.detail
      )
    ):
      return None
    return self._codec.fit_bit_swap(
      self._join_old(added, detail), phase=step, start=model
    )

  def _labels(self) -> np.ndarray:
    """Labels of remembered images to learn from, int32 [n]."""
    codes = self._index() if self._is_streamed() else self.read()
    return codes.labels[~codes.held_out]

  def _join_old(self, added: Codes, detail: int) -> Codes:
    if not self._store.contents["images"]:
      return added
    return Codes.join([self._coarser(self.read(), detail), added])

  def _write(
    self, step: int, added: Codes, raw: EncodedImages | None, detail: int
  ) -> None:
    """Writes codes and exemplars of a step, within the byte budget."""
    model, most = self._fitted(step, added, detail), None
    may_append = (
      len(added) > 0
      and self.may_append(self._store.contents)
      and detail == self.detail
    )
    if model is None and may_append:
      part = self._store.append(step, added)
    else:
      part = self._replace(step, added, None, model, detail=detail)
    room = self._room(self._codec.vqvae_bytes + self._store.model_bytes(part))
    self.dropped = 0
    if _size(part) > room:

      def replace(kept: np.ndarray | None) -> int:
        nonlocal part
        part = self._replace(step, added, kept, model, detail=detail)
        return _size(part)

      size = _size(part)
      if len(part["files"]) > 1:  # Joined into one file, they may fit.
        size = replace(None)
      marks = self._labels_and_marks(added)
      _, most = self._fewer(*marks, replace, size, room)
    parts = {self._store.PART: {**part, **self._kept_detail(detail)}}
    if raw is not None:
      written = self._exemplars.write(step, raw, room - _size(part), most)
      parts[self._exemplars.store.part] = written[0]
    everything = None
    if not self.dropped and not self._is_streamed(added.count):
      everything = self._join_old(added, detail)
    self._commit(step, parts)
    # What was just verified on the disk need not be decoded again.
    self._old = everything

  def _commit(self, step: int, parts: dict) -> None:
    self.folder.write(step, parts)
    self._old = self._blocks = None

  def _is_streamed(self, new: int = 0) -> bool:
    """Whether codes in force, and so many new ones, are too large for RAM."""
    codes = self._store.contents["codes"] + new
    return _CODE_BYTES * codes > self.config.data.ram_bytes

  def _index(self) -> CodeBlocks:
    """The chains in force; found and verified once a step."""
    if self._blocks is None:
      self._blocks = self._store.blocks()
    return self._blocks

  def _stream(self, task: Task, new: Codes) -> StreamFeed:
    """As `examples`, from the disk; `replay.cache` can only be "codes"."""
    blocks, labels = None, new.labels
    if self._store.contents["images"]:
      blocks = self._index()
      old = blocks.labels[~blocks.held_out]
      labels = np.concatenate([old, labels])
    return StreamFeed(
      blocks,
      new,
      self._codec.vqvae,
      self.setting.image_shape[:2],
      ram_bytes=self.config.data.ram_bytes,
      twins=self._twins(task, labels),
      raw_share=self.config.replay.raw_share,
    )

  def _replace(
    self,
    step: int,
    added: Codes | None,
    kept: np.ndarray | None,
    model: BitSwapModel | None,
    labels: np.ndarray | None = None,
    detail: int = FINEST,
  ) -> dict[str, Any]:
    """Writes the codes in force, and added ones, anew.

    Args:
      step: that writes.
      added: new codes; None without any.
      kept: sorted indices of images that stay; None keeps all.
      model: to write them with; None is the one that is there. Streamed codes
        are always written with the one that is there.
      labels: int32 [n], new labels of all images; None keeps them.
      detail: that the codes in force are coarsened to; streamed ones are not.
    """
    is_streamed = self._is_streamed(added.count if added else 0)
    if is_streamed and self._store.contents["images"]:
      return self._store.rewrite(step, self._sifted(added, kept, labels))
    codes = self.read() if added is None else self._join_old(added, detail)
    if labels is not None:
      codes = Codes(codes.top, codes.bottom, labels, codes.held_out)
    return self._store.replace(
      step, codes if kept is None else codes.take(kept), model
    )

  def _sifted(
    self,
    added: Codes | None,
    kept: np.ndarray | None,
    labels: np.ndarray | None,
  ) -> Iterator[Codes]:
    """Codes to write, one chain after the other; see `_replace`."""
    blocks = self._index()
    old = len(blocks.labels)
    stays = np.ones(old + (len(added) if added else 0), bool)
    if kept is not None:
      stays[:] = False
      stays[kept] = True
    for number in range(len(blocks)):
      rows = blocks.rows(number)
      if stays[rows].any():
        codes = blocks.codes(number)
        new = codes.labels if labels is None else labels[rows]
        codes = Codes(codes.top, codes.bottom, new, codes.held_out)
        yield codes.take(stays[rows])
    if added is not None:
      yield added.take(stays[old:])

  def _labels_and_marks(self, added: Codes) -> tuple[np.ndarray, np.ndarray]:
    """Labels int32 [n] and held-out marks bool [n], old images first."""
    parts = [added]
    if self._store.contents["images"]:
      is_streamed = self._is_streamed(added.count)
      parts.insert(0, self._index() if is_streamed else self.read())
    return tuple(
      np.concatenate([getattr(part, name) for part in parts])
      for name in ("labels", "held_out")
    )


def _size(part: dict[str, Any]) -> int:
  return sum(part["files"].values())
