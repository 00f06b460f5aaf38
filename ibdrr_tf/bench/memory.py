"""What remembering all of CIFAR-100 takes on the disk, and what else would."""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from ibdrr_tf.bench import lossy
from ibdrr_tf.codec import bit_swap_file, pretrained, weights
from ibdrr_tf.data import stream
from ibdrr_tf.data.source import Source
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.replay import selection
from ibdrr_tf.replay.codec import encode_examples
from ibdrr_tf.replay.exemplars import ExemplarStore
from ibdrr_tf.replay.memory import CodeMemory

__all__ = ["CODECS", "measure", "quality"]

CODECS = ("cifar100_depth1", "cifar100")
_EXEMPLARS = 20
_WEBP = (0, 5, 20, 50, 80)
_JPEG = (10, 30, 50, 80)
# The paper's memory table, in MB; what it calls MB is partly MiB.
_PAPER = {
  "paper, DRR": {
    "payload": 4.24e6,
    "codec_vqvae": 5.81e6,
    "codec_bitswap": 13.4e6,
    "raw_exemplars": 0.0,
  },
  "paper, IB-DRR": {
    "payload": 4.24e6,
    "codec_vqvae": 5.81e6,
    "codec_bitswap": 13.4e6,
    "raw_exemplars": 6.2e6,
  },
}


def measure(
  source: Source, codecs: tuple[str, ...] | list[str], count: int | None
) -> dict[str, dict[str, float]]:
  """Ledgers of `drr` and `ib_drr` with each codec; of all images, the paper's.

  Everything is really written: the codes of all images as a memory of one
  phase, and the exemplars.

  Args:
    source: CIFAR-100.
    codecs: names or folders.
    count: of images, the first ones; None takes all.
  """
  labels = source.train.labels
  order = np.argsort(labels, kind="stable")[:count]
  examples = stream.take(stream.Examples(labels, source.train.read), order)
  with tempfile.TemporaryDirectory() as temporary:
    exemplars = _write_exemplars(examples, pathlib.Path(temporary))
  rows = {}
  for name in codecs:
    stored = _write_memory(pretrained.folder_of(name), examples)
    rows[f"{name}, drr"] = _row(Ledger(**stored))
    rows[f"{name}, ib_drr"] = _row(Ledger(**stored, raw_exemplars=exemplars))
  raw = len(examples) * int(np.prod(source.train.image_shape))
  rows["raw pixels"] = _row(Ledger(raw_exemplars=raw, images=len(examples)))
  if count is None:  # The paper's are of all images.
    for name, parts in _PAPER.items():
      total = sum(parts.values())
      rows[name] = {**parts, "total": total, "bytes_per_image": total / 50_000}
  return rows


def quality(
  images: np.ndarray, codecs: tuple[str, ...] | list[str]
) -> dict[str, dict[str, float]]:
  """Bytes against PSNR of our codecs and of image files.

  Args:
    images: uint8 [n, h, w, 3], that no codec was trained on. Chains begin with
      bits that only many images repay: take a thousand or more.
    codecs: names or folders.

  Returns:
    A row for each codec and each quality of a file: `bytes` an image,
    `bytes_with_models`, which are spread over 50,000 images, and `psnr`.
  """
  rows = {
    name: lossy.stored_row(pretrained.folder_of(name), images)
    for name in codecs
  }
  for kind, title, qualities in (
    ("webp", "WebP", _WEBP),
    ("jpeg", "JPEG", _JPEG),
  ):
    for level in qualities:
      row = lossy.file_row(images, kind, level)
      # A reader of these formats is everywhere.
      row = {"bytes_with_models": row["bytes"], **row}
      rows[f"{title} quality {level}"] = row
  return rows


def _write_memory(
  folder: pathlib.Path, examples: stream.Examples
) -> dict[str, int]:
  vqvae_data = (folder / pretrained.VQVAE_FILE).read_bytes()
  codes = encode_examples(weights.from_bytes(vqvae_data), examples)
  model = bit_swap_file.from_bytes(
    (folder / pretrained.BITSWAP_FILE).read_bytes()
  )
  with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    memory = CodeMemory(root / "memory", root / "codec")
    memory.replace(0, codes, model)
    return {**memory.stored_bytes(), "codec_vqvae": len(vqvae_data)}


def _write_exemplars(examples: stream.Examples, folder: pathlib.Path) -> int:
  """Bytes of 20 raw images a class."""
  chosen = []
  for label in np.unique(examples.labels):
    members = np.flatnonzero(examples.labels == label)
    picked = selection.pick_random(len(members), _EXEMPLARS, (0, int(label)))
    chosen.append(members[picked])
  numbers = np.concatenate(chosen)
  store = ExemplarStore(folder, (len(chosen),))
  images = examples.read(tf.constant(numbers)).numpy()
  store.write(0, images, examples.labels[numbers])
  return store.stored_bytes


def _row(ledger: Ledger) -> dict[str, float]:
  fields = {k: v for k, v in ledger.to_json().items() if v is not None}
  return {**fields, "bytes_per_image": ledger.total / ledger.images}
