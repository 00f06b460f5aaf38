"""An epoch of training batches from the disk, beside the same codes in RAM.

A memory of many images is written as a learner would write it, in several
steps. Each way to read it then has a process of its own, so that its peak
memory is its own; see `growth` for how that is measured.
"""

import concurrent.futures
import multiprocessing
import pathlib
import shutil
import tempfile
import time

import numpy as np

from ibdrr_tf.bench.growth import peak_bytes
from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.data import shapes, stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import take
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codec import encode_examples
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.feeds import CodeFeed, Feed
from ibdrr_tf.replay.manifest import MemoryFolder
from ibdrr_tf.replay.stream_feed import StreamFeed

__all__ = ["WAYS", "measure", "measure_epoch"]

WAYS = ("from the disk (StreamFeed)", "in RAM (CodeFeed)")
_BATCH, _SIZE = 128, (32, 32)
_AUGMENT = Augmentation(padding=4)
_RAM_BYTES = 4 << 30


def measure(
  codec: str, *, images: int, steps: int, originals: int = 2_000
) -> dict[str, dict[str, float]]:
  """Writes a memory and reads it in each of `WAYS`.

  Args:
    codec: a name or folder.
    images: in the memory: copies of generated ones, all of which are coded.
    steps: in which they are written.
    originals: generated images to copy.

  Returns:
    A row for writing, with `images`, `seconds`, `images_per_second` and
    `file_megabytes`; and one for each way, see `measure_epoch`.
  """
  folder = pretrained.folder_of(codec)
  with tempfile.TemporaryDirectory() as temporary:
    root = pathlib.Path(temporary)
    (root / "codec").mkdir()
    for name in (pretrained.VQVAE_FILE, pretrained.BITSWAP_FILE):
      shutil.copy(folder / name, root / "codec" / name)
    codes = _generated(root / "codec", originals)
    rows = {"written": _write(root, codes, images, steps)}
    spawn = multiprocessing.get_context("spawn")
    for way in WAYS:
      with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
        try:
          row = pool.submit(measure_epoch, temporary, way).result()
        except concurrent.futures.process.BrokenProcessPool as error:
          raise UserError(
            "the process that measures memory was killed, as a rule for want "
            "of it: close other programs, or give --quick."
          ) from error
      rows[way] = row
  return rows


def measure_epoch(root: str, way: str) -> dict[str, float]:
  """Reads one epoch of training batches, in this process.

  Args:
    root: folder with `codec` and `memory`.
    way: of `WAYS`.

  Returns:
    `images`; `seconds_before`, until the first epoch can begin: to index the
    chains, or to decode them; `seconds` of the epoch, `images_per_second` in
    it, `peak_megabytes` of the process, and `idle_megabytes`, its peak once
    models and graphs were ready.

  Raises:
    AssertionError: if an image is missing or comes twice.
  """
  _, store = _open(pathlib.Path(root))
  blocks = store.blocks()
  one = blocks.codes(0)  # Builds the graph that decodes.
  labels = int(blocks.labels.astype(np.int64).sum())
  del blocks
  idle, started = peak_bytes(), time.perf_counter()
  feed = _feed(store, way, one, pathlib.Path(root))
  ready = time.perf_counter()
  count = total = 0
  for _, batch in feed.training_batches(
    batch_size=_BATCH,
    epochs=range(1),
    seed=stream.fold_in(0),
    augment=_AUGMENT,
  ):
    count += len(batch)
    total += int(np.sum(batch, dtype=np.int64))
  ended = time.perf_counter()
  assert (count, total) == (len(feed), labels), "other images than were kept"
  return {
    "images": count,
    "seconds_before": ready - started,
    "seconds": ended - ready,
    "images_per_second": count / (ended - ready),
    "peak_megabytes": peak_bytes() / 1e6,
    "idle_megabytes": idle / 1e6,
  }


def _feed(store: CodeStore, way: str, one: Codes, root: pathlib.Path) -> Feed:
  data = (root / "codec" / pretrained.VQVAE_FILE).read_bytes()
  vqvae = vqvae_file.from_bytes(data)
  if way == WAYS[1]:
    return CodeFeed(store.read(), vqvae, _SIZE)
  nothing = one.take(np.zeros(0, np.int64))
  return StreamFeed(store.blocks(), nothing, vqvae, _SIZE, ram_bytes=_RAM_BYTES)


def _generated(folder: pathlib.Path, count: int) -> Codes:
  """Codes of generated images, sorted by class as in a memory."""
  vqvae = vqvae_file.from_bytes((folder / pretrained.VQVAE_FILE).read_bytes())
  examples = shapes.load_shapes(
    seed=0,
    image_size=_SIZE[0],
    train_per_class=-(-count // len(shapes.CLASS_NAMES)),
    test_per_class=1,
  ).train
  places = np.linspace(0, len(examples) - 1, count).round().astype(np.int64)
  return encode_examples(vqvae, take(examples, places))


def _write(
  root: pathlib.Path, codes: Codes, images: int, steps: int
) -> dict[str, float]:
  """Appends copies in steps; each step is verified by decoding it."""
  (folder, store), started = _open(root), time.perf_counter()
  for step in range(steps):
    count = images * (step + 1) // steps - images * step // steps
    copied = codes.take(np.sort(np.arange(count) % len(codes)))
    part = store.append(step, copied)
    folder.write(step, {store.PART: part})
  seconds = time.perf_counter() - started
  return {
    "images": images,
    "seconds": seconds,
    "images_per_second": images / seconds,
    "file_megabytes": sum(store.contents["files"].values()) / 1e6,
  }


def _open(root: pathlib.Path) -> tuple[MemoryFolder, CodeStore]:
  folder = MemoryFolder(root / "memory")
  return folder, CodeStore(folder, root / "codec")
