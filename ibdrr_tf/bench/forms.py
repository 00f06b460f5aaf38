"""The forms in which `bench accuracy` keeps images: rivals, and ours."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training
from ibdrr_tf.bench.accuracy import Form, Kept
from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.codec.lossless.bit_swap_codec import codec_of
from ibdrr_tf.config import get_config, use_full_recipe
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.replay import image_formats, sheets
from ibdrr_tf.replay.codec import (
  coarsen_codes,
  decode_images,
  encode_examples,
)
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.detail import estimated_bytes, finest_detail
from ibdrr_tf.replay.memory import keep_alike

__all__ = ["code_form", "file_form", "rivals", "sheet_form"]

_BEST = 100
# Headers of chains.
_OVERHEAD = 1.003


def rivals() -> dict[str, Form]:
  """What a user has without a codec of this package."""
  return {
    "avif sheets": sheet_form("avif_best"),
    "webp sheets": sheet_form("webp"),
    "webp files": file_form("webp"),
  }


def sheet_form(kind: str) -> Form:
  """One contact sheet a class, at the highest quality that fits.

  Args:
    kind: a key of `sheets.FORMATS`.
  """

  @functools.cache
  def encoded(keep: _Same, quality: int) -> list[list[sheets.Sheet]]:
    return [
      sheets.encode(keep.images[keep.labels == label], kind, quality)
      for label in np.unique(keep.labels)
    ]

  def form(images, labels, room, share) -> Kept | None:
    del share  # There is no model.
    every = _Same(images, labels)
    some = _Same(*_first_classes(images, labels, 3))

    def size(keep: _Same, quality: int) -> int:
      of_all = encoded(keep, quality)
      return sum(len(sheet.data) for part in of_all for sheet in part)

    part = len(some.labels) / len(labels)
    guess = _highest(lambda quality: size(some, quality) <= room * part)
    quality = _climb(lambda quality: size(every, quality) <= room, guess)
    if quality is None:
      return None
    decoded = [
      sheets.decode(part, kind, images.shape[1:])
      for part in encoded(every, quality)
    ]
    return Kept(
      f"quality {quality}", np.concatenate(decoded), size(every, quality)
    )

  return form


def file_form(kind: str) -> Form:
  """A file for each image; at the lowest quality, of as many as fit.

  Args:
    kind: a key of `image_formats.FORMATS`.
  """

  def form(images, labels, room, share) -> Kept | None:
    del share

    @functools.cache
    def encoded(quality: int) -> list[bytes]:
      return image_formats.encode(images, kind, quality)

    def size(quality: int) -> int:
      return sum(map(len, encoded(quality)))

    quality = _highest(lambda quality: size(quality) <= room)
    places = np.arange(len(labels))
    if quality is None:
      quality = 0
      places = _as_many_as_fit(list(map(len, encoded(0))), labels, room)
      if not len(places):
        return None
    kept = [encoded(quality)[place] for place in places]
    return Kept(
      f"quality {quality}, {len(places)} images",
      image_formats.decode(kept, kind, images.shape[1:]),
      sum(map(len, kept)),
      places=places,
    )

  return form


def _as_many_as_fit(
  sizes: list[int], labels: np.ndarray, room: float
) -> np.ndarray:
  """Places of images that fit, of all classes alike: int64 [m], sorted."""
  nobody = np.zeros(len(labels), bool)
  for most in range(int(np.bincount(labels).max()), 0, -1):
    places = keep_alike(labels, nobody, most, (0,))
    if sum(sizes[place] for place in places) <= room:
      return places
  return np.zeros(0, np.int64)


def code_form(codec: str) -> Form:
  """Bit-strings of a codec, with as much detail as fits.

  Bit-Swap is fine-tuned on the codes, as a memory does it. Both models count.

  Args:
    codec: a name or folder.
  """
  folder = pretrained.folder_of(codec)
  vqvae = codec_training.load_vqvae(folder)
  vqvae_bytes = (folder / pretrained.VQVAE_FILE).stat().st_size
  start = (folder / pretrained.BITSWAP_FILE).read_bytes()

  @functools.cache
  def encoded(same: _Same) -> Codes:
    return encode_examples(vqvae, in_memory(same.images, same.labels))

  @functools.cache
  def fitted(same: _Same, detail: int, data: bytes) -> bytes:
    codes = coarsen_codes(vqvae, encoded(same), detail)
    return _fine_tune(vqvae, codes, data)

  def form(images, labels, room, share) -> Kept | None:
    same = _Same(images, labels)

    def finest(data: bytes) -> int:
      model = bit_swap_file.from_bytes(data)
      free = room - (vqvae_bytes + len(data)) / share
      return finest_detail(
        vqvae,
        encoded(same),
        lambda codes: _OVERHEAD * estimated_bytes(model, codes) <= free,
      )

    # A fine-tuned model needs less, and so leaves room for more detail.
    data = fitted(same, finest(start), start)
    detail = finest(data)
    while detail >= 0:
      data = fitted(same, detail, start)
      codes = coarsen_codes(vqvae, encoded(same), detail)
      payload = _coded_bytes(codes, data)
      if payload + (vqvae_bytes + len(data)) / share <= room:
        images = decode_images(vqvae, codes, images.shape[1:3])
        setting = f"detail {detail}"
        return Kept(setting, images, payload, vqvae_bytes + len(data))
      if not vqvae.bottom_quantizer.blank:
        break
      detail -= 1
    return None

  return form


def _fine_tune(vqvae, codes: Codes, data: bytes) -> bytes:
  """The lossless stage, fitted to codes as in a step of a memory."""
  config = get_config()
  use_full_recipe(config)
  with tempfile.TemporaryDirectory() as folder:
    trainer = codec_training.BitSwapTrainer(
      config, vqvae, pathlib.Path(folder), tf.distribute.get_strategy()
    )
    model = trainer.train(codes, phase=1, start=bit_swap_file.from_bytes(data))
  return bit_swap_file.to_bytes(model)


def _coded_bytes(codes: Codes, data: bytes) -> int:
  """Bytes of all chains, which are decoded and compared."""
  codec = codec_of(data)
  chains = codec.compress(codes.top, codes.bottom)
  top, bottom = codec.decompress(chains)
  if not (
    np.array_equal(top, codes.top) and np.array_equal(bottom, codes.bottom)
  ):
    raise RuntimeError("decoded codes differ from what was encoded")
  return sum(map(len, chains))


class _Same:
  """Images and labels that a cache takes for the same if they are."""

  def __init__(self, images: np.ndarray, labels: np.ndarray):
    self.images = images
    self.labels = labels
    self._key = (len(labels), images[0].tobytes(), images[-1].tobytes())

  def __hash__(self) -> int:
    return hash(self._key)

  def __eq__(self, other: object) -> bool:
    return isinstance(other, _Same) and self._key == other._key


def _first_classes(
  images: np.ndarray, labels: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
  chosen = labels < count
  return images[chosen], labels[chosen]


def _highest(fits: Callable[[int], bool]) -> int | None:
  """The highest quality, 0 to 100, that fits; None if none does."""
  low, high = -1, _BEST + 1  # The lower one fits, the higher one does not.
  while high - low > 1:
    middle = (low + high) // 2
    if fits(middle):
      low = middle
    else:
      high = middle
  return low if low >= 0 else None


def _climb(fits: Callable[[int], bool], start: int | None) -> int | None:
  """As `_highest`, where the answer is near `start`."""
  quality = start or 0
  while quality < _BEST and fits(quality):
    quality += 1
  while quality >= 0 and not fits(quality):
    quality -= 1
  return quality if quality >= 0 else None
