"""What codes cost in every lossless form, and how fast that is."""

import pathlib
import time
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training
from ibdrr_tf.codec import bit_swap_file, latents, model_file, static
from ibdrr_tf.codec import planes as planes_module
from ibdrr_tf.codec.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.code_codec import CodeCodec
from ibdrr_tf.codec.range_coder import encode, make_lookup
from ibdrr_tf.errors import UserError

__all__ = ["coder_speed", "elbo", "measure", "size_curve"]

_BATCH = 500
# Chains and groups: each around what is used, the other kept.
_SIZES = [(size, 64) for size in (100, 250, 500, 1000, 2500)]
_SIZES += [(1000, size) for size in (8, 16, 32, 128)]


def measure(
  folder: str, codes: tuple[np.ndarray, np.ndarray]
) -> dict[str, dict[str, float]]:
  """Bits a code, model bytes and speed of each form.

  Args:
    folder: a codec folder.
    codes: top and bottom, int [n, h, w, depth].

  Returns:
    A row for each form: `bits_per_code` (all that is stored but the model),
    `model_bytes`, and images a second.
  """
  data = (pathlib.Path(folder) / codec_training.BITSWAP_FILE).read_bytes()
  shape = bit_swap_file.from_bytes(data).get_config()
  depths = shape["top_depth"], shape["bottom_depth"]
  size = int(max(level.max() for level in codes)) + 1
  planes = planes_module.to_planes(
    *(tf.constant(level, tf.int32) for level in codes)
  ).numpy()
  plain = static.pack_plainly(planes, size)
  rows = {
    "plain packing": {
      "bits_per_code": 8 * len(plain) / planes.size,
      "model_bytes": 0,
    }
  }
  for name, per_position in (("order 0", False), ("per position", True)):
    coder = static.count_tables(
      planes, size, *depths, per_position=per_position
    )
    stored = coder.to_bytes()
    codec = CodeCodec(coder, model_file.fingerprint(stored), *depths)
    rows[name] = _timed(codec, codes, len(stored))
  codec = codec_training.load_code_codec(folder)
  codec.decompress(codec.compress(*(level[:40] for level in codes)))  # Traces.
  rows["Bit-Swap"] = _timed(codec, codes, len(data))
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
  rows = {}
  for chain_images, group in _SIZES:
    codec = codec_training.load_code_codec(
      folder, chain_images=chain_images, group=group
    )
    codec.decompress(
      codec.compress(*(level[:40] for level in codes))
    )  # Traces.
    row = _timed(codec, codes, 0)
    del row["model_bytes"]
    rows[f"{chain_images} images a chain, {group} a group"] = row
  return rows


def coder_speed(count: int = 2_000_000) -> dict[str, float]:
  """Decisions a second of our range coder and of constriction's ANS coder.

  Both get the same decisions with the same Bernoulli tables, on one stream.
  """
  try:
    import constriction
  except ImportError as error:
    raise UserError(
      "the comparison needs constriction: pip install constriction."
    ) from error
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


def _timed(
  codec: CodeCodec, codes: tuple[np.ndarray, np.ndarray], model_bytes: int
) -> dict[str, Any]:
  started = time.perf_counter()
  chains = codec.compress(*codes)
  encoded = time.perf_counter()
  back = codec.decompress(chains)
  ended = time.perf_counter()
  for want, got in zip(codes, back, strict=True):
    np.testing.assert_array_equal(want, got)
  images = len(codes[0])
  return {
    "bits_per_code": 8
    * sum(len(chain) for chain in chains)
    / sum(level.size for level in codes),
    "model_bytes": model_bytes,
    "encode_images_per_second": images / (encoded - started),
    "decode_images_per_second": images / (ended - encoded),
  }
