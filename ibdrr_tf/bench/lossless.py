"""What codes cost in every lossless form, and how fast that is."""

import pathlib
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training
from ibdrr_tf.bench import rivals
from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import bit_swap_file, chain, latents, static
from ibdrr_tf.codec.lossless import planes as planes_module
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.codec.lossless.range_coder import encode, make_lookup

__all__ = ["coder_speed", "elbo", "measure", "size_curve", "timed"]

_BATCH = 500
# Chains and groups: each around what is used, the other kept.
_SIZES = [(size, 64) for size in (100, 250, 500, 1000, 2500)]
_SIZES += [(1000, size) for size in (8, 16, 32, 128)]


def measure(
  folder: str, codes: tuple[np.ndarray, np.ndarray]
) -> dict[str, dict[str, float]]:
  """What each form costs, and how fast it is, on the same codes.

  Every form is decoded and compared. Tables and models are made, and graphs
  built, before the clock starts.

  Args:
    folder: a codec folder.
    codes: top and bottom, int [n, h, w, depth].

  Returns:
    A row for each form: `bits_per_code` and `megabytes` (10^6 bytes) of all
    that is stored but the model; `header_bytes`, the part of it that chains'
    headers are, and `seed_bytes`, what bits-back coding began with and never
    won back; `model_bytes`; and images a second.
  """
  data = (pathlib.Path(folder) / codec_training.BITSWAP_FILE).read_bytes()
  model = bit_swap_file.from_bytes(data)
  shape = model.get_config()
  depths = shape["top_depth"], shape["bottom_depth"]
  size = max(len(tree) for tree in model.trees)
  planes = planes_module.to_planes(
    *(tf.constant(level, tf.int32) for level in codes)
  ).numpy()
  rows = {"plain packing": timed(rivals.plain(planes.shape, size), [planes])}
  for name, coder in rivals.file_coders(planes.shape, size).items():
    rows[name] = timed(coder, [planes])
  for name, per_position in (("order 0", False), ("per position", True)):
    coder = static.count_tables(
      planes, size, *depths, per_position=per_position
    )
    stored = coder.to_bytes()
    codec = CodeCodec(coder, model_file.fingerprint(stored), *depths)
    rows[name] = _timed_codec(codec, codes, stored)
    theirs = rivals.constriction_coder(coder.tables, planes.shape)
    if theirs:
      rows[f"{name}, constriction"] = timed(theirs, [planes], len(stored))
  codec = codec_training.load_code_codec(folder)
  rows["Bit-Swap"] = _timed_codec(codec, codes, data)
  return rows


def elbo(model: BitSwapModel, planes: np.ndarray) -> float:
  """The frozen model's own -ELBO of all images, in bits a code."""
  step = tf.function(model.elbo_bits)
  batches = tf.data.Dataset.from_tensor_slices(planes).batch(_BATCH)
  bits = sum(
    float(tf.reduce_sum(step(batch, tf.constant([7, n], tf.int64))[0]))
    for n, batch in enumerate(batches)
  )
  return bits / planes.size


def size_curve(
  folder: str, codes: tuple[np.ndarray, np.ndarray]
) -> dict[str, dict[str, float]]:
  """What sizes of chains and groups cost, in bits a code and in time.

  Args:
    folder: a codec folder.
    codes: top and bottom, int [n, h, w, depth].
  """
  stored = (pathlib.Path(folder) / codec_training.BITSWAP_FILE).read_bytes()
  rows = {}
  for chain_images, group in _SIZES:
    codec = codec_training.load_code_codec(
      folder, chain_images=chain_images, group=group
    )
    row = _timed_codec(codec, codes, stored)
    del row["model_bytes"]
    rows[f"{chain_images} images a chain, {group} a group"] = row
  return rows


def coder_speed(count: int = 2_000_000) -> dict[str, float] | None:
  """Decisions a second of our range coder and of constriction's ANS coder.

  Both get the same decisions with the same Bernoulli tables, on one stream.

  Returns:
    None if constriction is not installed.
  """
  if not rivals.is_installed("constriction"):
    return None
  import constriction

  tables = latents.make_tables().cumulative[: 2 * latents.BERNOULLI_REACH + 1]
  generator = np.random.default_rng(0)
  index = generator.integers(0, len(tables), count).astype(np.int32)
  zero = np.array([table[1] for table in tables])[index] / (1 << 16)
  bits = (generator.random(count) >= zero).astype(np.int32)
  lookup = tf.constant(make_lookup(tables))
  arguments = tf.constant(index[np.newaxis]), tf.constant(bits[np.newaxis])
  encode(arguments[0][:, :10], arguments[1][:, :10], lookup)
  started = time.perf_counter()
  ours = len(encode(*arguments, lookup).numpy()[0])
  middle = time.perf_counter()
  ans = constriction.stream.stack.AnsCoder()
  family = constriction.stream.model.Bernoulli(perfect=False)
  ans.encode_reverse(bits, family, (1 - zero).astype(np.float32))
  ended = time.perf_counter()
  return {
    "ours_per_second": count / (middle - started),
    "constriction_per_second": count / (ended - middle),
    "ratio": (ended - middle) / (middle - started),
    "ours_bytes": ours,
    "constriction_bytes": ans.num_bits() / 8,
  }


def timed(
  coder: rivals.Coder | CodeCodec,
  codes: Sequence[np.ndarray],
  model_bytes: int = 0,
) -> dict[str, float]:
  """Codes and decodes once, compares, and gives a row of `measure`.

  Args:
    coder: has `compress` and `decompress`.
    codes: what `compress` takes: arrays of n images each.
    model_bytes: what a reader needs besides the strings.

  Raises:
    AssertionError: if other codes come back.
  """
  started = time.perf_counter()
  strings = coder.compress(*codes)
  encoded = time.perf_counter()
  back = coder.decompress(strings)
  ended = time.perf_counter()
  for want, got in zip(codes, back, strict=True):
    np.testing.assert_array_equal(want, got)
  images = len(codes[0])
  size = sum(len(string) for string in strings)
  return {
    "bits_per_code": 8 * size / sum(level.size for level in codes),
    "megabytes": size / 1e6,
    "header_bytes": 0,
    "seed_bytes": 0,
    "model_bytes": model_bytes,
    "encode_images_per_second": images / (encoded - started),
    "decode_images_per_second": images / (ended - encoded),
  }


def _timed_codec(
  codec: CodeCodec, codes: tuple[np.ndarray, np.ndarray], stored: bytes
) -> dict[str, float]:
  """`timed`, for a codec of chains and its stored model."""
  few = codec.compress(*(level[:40] for level in codes))
  codec.decompress(few)  # Now its graphs are built.
  chains = []

  def compress(*levels: np.ndarray) -> list[bytes]:
    chains.extend(codec.compress(*levels))
    return chains

  row = timed(rivals.Coder(compress, codec.decompress), codes, len(stored))
  depths = (level.shape[-1] for level in codes)
  planes = len(planes_module.plane_levels(*depths))
  opened = chain.open_chains(
    tf.constant(chains), planes, tf.constant([model_file.fingerprint(stored)])
  )
  return {
    **row,
    "header_bytes": len(chains) * chain.HEADER_BYTES,
    "seed_bytes": int(tf.reduce_sum(opened.seed)),
  }
