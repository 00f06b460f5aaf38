"""How time, bytes and memory of the whole codec grow with what it is given.

A process of its own, which does nothing else, takes the sets of images in the
order of their pixels. The peak memory of a row is the kernel's high-water mark
so far, `VmHWM`, less what the process held when models and graphs were ready:
the images themselves count, and no row can look better than it is. `ru_maxrss`
would not do: it begins with what the *parent* held when it started the process,
which here is a whole data set. It is taken only where there is no `VmHWM`.
"""

import concurrent.futures
import multiprocessing
import pathlib
import resource
import sys
import tempfile
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec.image_codec import ImageCodec, load_image_codec
from ibdrr_tf.data.image_files import find_images, read_images
from ibdrr_tf.data.resize import resize_and_crop
from ibdrr_tf.errors import UserError

__all__ = ["at_sizes", "measure", "measure_apart", "of_counts", "peak_bytes"]

_STATUS = pathlib.Path("/proc/self/status")


def of_counts(
  images: np.ndarray, counts: Sequence[int]
) -> dict[str, np.ndarray]:
  """The first so many images, by what to call them.

  Args:
    images: uint8 [n, h, w, 3].
    counts: numbers of images; those above n become n.
  """
  chosen = sorted({min(count, len(images)) for count in counts})
  return {f"{count:,} images": images[:count] for count in chosen}


def at_sizes(
  images: np.ndarray | str, sizes: Sequence[int], count: int
) -> dict[str, np.ndarray]:
  """The same images at several sizes, by what to call them.

  An image that was enlarged is smoother than one that was taken large, and its
  codes are shorter: such rows are about time and memory; for bytes, give
  photographs.

  Args:
    images: uint8 [n, h, w, 3], or a folder of photographs.
    sizes: sides of a square, in pixels.
    count: how many images to take, the first ones.
  """

  def at(size: int) -> np.ndarray:
    if isinstance(images, str):
      files = find_images(images)[:count]
      return read_images(files, (size, size, 3), size)
    return np.stack([resize_and_crop(i, size) for i in images[:count]])

  return {f"{size} pixels": at(size) for size in sizes}


def measure_apart(
  folder: str, curves: dict[str, dict[str, np.ndarray]]
) -> dict[str, dict[str, dict[str, float]]]:
  """`measure`, in a new process.

  Args:
    folder: a codec folder.
    curves: sets of images by name, by curve. Curves in one call share a
      process, and so its high-water mark.

  Returns:
    For each curve the row of each set, with `ratio_of_seconds_per_code` to the
    curve's first one.
  """
  keys = [(curve, name) for curve, sets in curves.items() for name in sets]
  keys.sort(key=lambda key: curves[key[0]][key[1]].size)
  with tempfile.TemporaryDirectory() as temporary:
    paths = [f"{temporary}/{number}.npy" for number in range(len(keys))]
    for path, (curve, name) in zip(paths, keys, strict=True):
      np.save(path, curves[curve][name])
    # A process that is forked would share, and count, what this one holds.
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as pool:
      try:
        rows = pool.submit(measure, folder, paths).result()
      except concurrent.futures.process.BrokenProcessPool as error:
        raise UserError(
          "the process that measures memory was killed, as a rule for want of "
          "it: close other programs, or give --quick."
        ) from error
  measured = dict(zip(keys, rows, strict=True))
  tables = {}
  for curve, sets in curves.items():
    tables[curve] = {name: measured[curve, name] for name in sets}
    first = next(iter(tables[curve].values()))["seconds_per_code"]
    for row in tables[curve].values():
      row["ratio_of_seconds_per_code"] = row.pop("seconds_per_code") / first
  return tables


def measure(folder: str, paths: Sequence[str]) -> list[dict[str, float]]:
  """Sends sets of images through the codec and back, in this process.

  Args:
    folder: a codec folder.
    paths: .npy files of images, uint8 [n, h, w, 3], the smallest first.

  Returns:
    For each set `images`, seconds an image each way, `bytes_per_code` without
    models, `seconds_per_code` both ways, and `peak_megabytes`.

  Raises:
    AssertionError: if other codes come back.
  """
  codec = load_image_codec(folder)
  _round_trip(codec, np.zeros((2, 32, 32, 3), np.uint8))  # Builds graphs.
  idle = peak_bytes()
  return [_row(codec, path, idle) for path in paths]


def peak_bytes() -> int:
  """The most memory that this process has held so far."""
  if _STATUS.exists():
    for line in _STATUS.read_text().splitlines():
      if line.startswith("VmHWM:"):
        return 1024 * int(line.split()[1])
  unit = 1 if sys.platform == "darwin" else 1024
  return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _row(codec: ImageCodec, path: str, idle: int) -> dict[str, float]:
  images = np.load(path)
  number, size, encoding, decoding = _round_trip(codec, images)
  return {
    "images": len(images),
    "encode_seconds_per_image": encoding / len(images),
    "decode_seconds_per_image": decoding / len(images),
    "bytes_per_code": size / number,
    "seconds_per_code": (encoding + decoding) / number,
    "peak_megabytes": (peak_bytes() - idle) / 1e6,
  }


def _round_trip(
  codec: ImageCodec, images: np.ndarray
) -> tuple[int, int, float, float]:
  """Number of codes, bytes of chains, and seconds there and back."""
  started = time.perf_counter()
  codes = codec.encode(images)
  chains = codec.codes.encode_chains(*codes, 0).numpy()
  encoded = time.perf_counter()
  back = codec.codes.decode_chains(chains)
  codec.decode(*back).numpy()
  ended = time.perf_counter()
  for want, got in zip(codes, back, strict=True):
    np.testing.assert_array_equal(want, got)
  return (
    sum(int(tf.size(level)) for level in codes),
    sum(map(len, chains)),
    encoded - started,
    ended - encoded,
  )
