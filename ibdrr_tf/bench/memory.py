"""What remembering all of CIFAR-100 takes on the disk, and what else would."""

import pathlib
import tempfile

import numpy as np
import tensorflow as tf

from ibdrr_tf.bench import lossy
from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.data.examples import Examples, take
from ibdrr_tf.data.source import Source
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.replay import image_formats, selection
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codec import encode_examples
from ibdrr_tf.replay.image_store import EncodedImages, ImageStore
from ibdrr_tf.replay.manifest import MemoryFolder

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
  step, then the exemplars beside them.

  Args:
    source: CIFAR-100.
    codecs: names or folders.
    count: of images, the first ones; None takes all.
  """
  labels = source.train.labels
  order = np.argsort(labels, kind="stable")[:count]
  examples = take(source.train, order)
  exemplars = _exemplars(examples)
  rows = {}
  for name in codecs:
    ledgers = _write_memory(pretrained.folder_of(name), examples, exemplars)
    for method, ledger in ledgers.items():
      rows[f"{name}, {method}"] = _row(ledger)
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
  folder: pathlib.Path, examples: Examples, exemplars: EncodedImages
) -> dict[str, Ledger]:
  """Ledgers of a memory of codes, without exemplars and with them."""
  vqvae_data = (folder / pretrained.VQVAE_FILE).read_bytes()
  codes = encode_examples(vqvae_file.from_bytes(vqvae_data), examples)
  model = bit_swap_file.from_bytes(
    (folder / pretrained.BITSWAP_FILE).read_bytes()
  )
  with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    memory = MemoryFolder(root / "memory")
    chains = CodeStore(memory, root / "codec")
    images = ImageStore(memory, "exemplars")

    def ledger() -> Ledger:
      memory.settle()
      stored = chains.stored_bytes()
      stored["index"] += memory.manifest_bytes
      raw = sum(images.contents["files"].values())
      return Ledger(**stored, codec_vqvae=len(vqvae_data), raw_exemplars=raw)

    parts = {chains.PART: chains.replace(0, codes, model)}
    memory.write(0, parts)
    chains.settle()
    drr = ledger()
    memory.write(1, {**parts, images.part: images.append(1, exemplars)})
    return {"drr": drr, "ib_drr": ledger()}


def _exemplars(examples: Examples) -> EncodedImages:
  """20 raw images of each class, losslessly compressed."""
  chosen = []
  for label in np.unique(examples.labels):
    members = np.flatnonzero(examples.labels == label)
    order = selection.random_order(len(members), (0, int(label)))
    chosen.append(members[order[:_EXEMPLARS]])
  numbers = np.concatenate(chosen)
  images = examples.read(tf.constant(numbers)).numpy()
  return EncodedImages(
    image_formats.encode(images, "lossless"), examples.labels[numbers]
  )


def _row(ledger: Ledger) -> dict[str, float]:
  fields = {k: v for k, v in ledger.to_json().items() if v is not None}
  return {**fields, "bytes_per_image": ledger.total / ledger.images}
