"""Stored models that were changed and given a right checksum again."""

import hashlib
import json
import struct
import zlib

import growth
import numpy as np
import pytest

from ibdrr_tf.codec import constant_weights
from ibdrr_tf.codec.image_codec import ImageCodec
from ibdrr_tf.codec.lossless import static
from ibdrr_tf.errors import UserError

OPENERS = {
  "vqvae.ibvq": constant_weights.load_vqvae,
  "bitswap.ibbs": constant_weights.load_bit_swap,
  "static.ibst": static.StaticCoder.from_bytes,
}


def parts(data):
  """(prefix, header, body) of a stored model."""
  magic, version, length = struct.unpack_from("<4sHI", data)
  header = json.loads(data[10 : 10 + length])
  return (magic, version), header, zlib.decompress(data[10 + length : -8])


def seal(prefix, header, packed):
  text = header if isinstance(header, bytes) else json.dumps(header).encode()
  data = struct.pack("<4sHI", *prefix, len(text)) + text + packed
  return data + hashlib.sha256(data).digest()[:8]


def pack(body):
  packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
  return packer.compress(body) + packer.flush()


@pytest.fixture(params=OPENERS)
def stored(request, codec_folder):
  data = (codec_folder / request.param).read_bytes()
  return OPENERS[request.param], *parts(data)


def refused(open_model, prefix, header, packed, match=None):
  with (
    growth.at_most(300),
    pytest.raises(UserError, match=match or "cannot be used") as error,
  ):
    open_model(seal(prefix, header, packed))
  assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_what_is_no_header_or_body_is_refused(stored):
  open_model, prefix, header, body = stored
  open_model(seal(prefix, header, pack(body)))
  for text in (b"", b"{", b"[1]", b"3", b"\xff", b"[" * 100_000, {}):
    refused(open_model, prefix, text, pack(body))
  for packed in (b"", b"abc", pack(body)[:-3], pack(body) + b"\0"):
    refused(open_model, prefix, header, packed, "not deflated|cut off or fol")
  refused(open_model, prefix, header, pack(body + b"\0"), "more than its head")
  refused(open_model, prefix, header, pack(body[:-1]))
  refused(open_model, prefix, header, pack(b""))


def test_a_body_that_unpacks_to_gigabytes_is_refused(stored):
  open_model, prefix, header, _ = stored
  packer = zlib.compressobj(9)
  block = bytes(1 << 24)
  packed = b"".join(packer.compress(block) for _ in range(64)) + packer.flush()
  assert len(packed) < 1.1e6
  refused(open_model, prefix, header, packed, "cut off or followed")


@pytest.mark.parametrize(
  ("name", "word", "value"),
  [
    ("vqvae.ibvq", "embedding", 10**6),
    ("vqvae.ibvq", "embedding", 4000),
    ("vqvae.ibvq", "channels", 1.5),
    ("vqvae.ibvq", "channels", 4000),
    ("vqvae.ibvq", "channels", True),
    ("vqvae.ibvq", "residual_blocks", -1),
    ("vqvae.ibvq", "residual_blocks", 200),
    ("vqvae.ibvq", "codebook_size", 1 << 14),
    ("vqvae.ibvq", "bottom_depth", 0),
    ("vqvae.ibvq", "layout", "other"),
    ("vqvae.ibvq", "commitment", "much"),
    ("vqvae.ibvq", "name", "x"),
    ("vqvae.ibvq", "feature_loss", None),
    ("bitswap.ibbs", "width", 4000),
    ("bitswap.ibbs", "embedding", -4),
    ("bitswap.ibbs", "blocks", 200),
    ("bitswap.ibbs", "bottom_depth", 60),
    ("bitswap.ibbs", "latent_stride", 3),
    ("bitswap.ibbs", "latents", None),
    ("bitswap.ibbs", "trees", []),
  ],
)
def test_impossible_configurations_are_refused(codec_folder, name, word, value):
  prefix, header, body = parts((codec_folder / name).read_bytes())
  header["config"][word] = value
  refused(OPENERS[name], prefix, header, pack(body))


@pytest.mark.parametrize(
  ("name", "word", "value"),
  [
    ("bitswap.ibbs", "codes", [16, 1 << 30]),
    ("bitswap.ibbs", "codes", [16]),
    ("bitswap.ibbs", "codes", 7),
    ("bitswap.ibbs", "codes", [16, 12]),
    ("static.ibst", "shape", [1, 5, 10**9]),
    ("static.ibst", "shape", [1, -5, -17]),
    ("static.ibst", "shape", [5, 17]),
    ("static.ibst", "grid", [3, 3]),
    ("static.ibst", "grid", "x"),
  ],
)
def test_impossible_shapes_are_refused(codec_folder, name, word, value):
  prefix, header, body = parts((codec_folder / name).read_bytes())
  refused(OPENERS[name], prefix, {**header, word: value}, pack(body))


def test_numbers_that_are_none_are_refused(codec_folder):
  prefix, header, body = parts((codec_folder / "vqvae.ibvq").read_bytes())
  # The last two bytes are a scale of the last codebook.
  for half in (np.float16("nan"), np.float16("inf"), np.float16(-1)):
    broken = body[:-2] + half.astype("<f2").tobytes()
    refused(OPENERS["vqvae.ibvq"], prefix, header, pack(broken))


def test_trees_and_weights_of_bit_swap_are_checked(codec_folder):
  open_model = OPENERS["bitswap.ibbs"]
  prefix, header, body = parts((codec_folder / "bitswap.ibbs").read_bytes())
  refused(open_model, prefix, header, pack(body[2:4] + body[2:]), "leaf twice")
  refused(open_model, prefix, header, pack(body[:70] + b"\x80" + body[71:]))


def test_stages_of_other_codebooks_do_not_belong_together(codec_folder):
  read = [(codec_folder / name).read_bytes() for name in OPENERS]
  tables = static.count_tables(
    np.zeros((1, 1, 1, 9), int), 16, 1, 2, per_position=False
  )
  with pytest.raises(UserError, match="static tables have 9 planes"):
    ImageCodec(read[0], read[1], tables.to_bytes())
  tables = static.count_tables(
    np.zeros((1, 1, 1, 5), int), 8, 1, 1, per_position=False
  )
  with pytest.raises(UserError, match="codebooks of 16 codes"):
    ImageCodec(read[0], read[1], tables.to_bytes())
