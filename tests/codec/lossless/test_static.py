import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import planes as planes_module
from ibdrr_tf.codec.lossless import static
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.errors import UserError


def skewed_codes(count=60, seed=0):
  generator = np.random.default_rng(seed)
  top = generator.geometric(0.3, (count, 2, 3, 1)).clip(1, 16) - 1
  bottom = generator.geometric(0.1, (count, 4, 6, 1)).clip(1, 16) - 1
  bottom[:, :2] //= 4  # Places differ.
  return top, bottom


def make_codec(top, bottom, per_position):
  joined = planes_module.to_planes(
    tf.constant(top, tf.int32), tf.constant(bottom, tf.int32)
  )
  coder = static.count_tables(
    joined.numpy(), 16, 1, 1, per_position=per_position
  )
  data = coder.to_bytes()
  coder = static.StaticCoder.from_bytes(data)
  assert coder.to_bytes() == data
  return CodeCodec(coder, model_file.fingerprint(data), chain_images=25)


@pytest.mark.parametrize("per_position", [False, True])
def test_codes_come_back(per_position):
  top, bottom = skewed_codes()
  codec = make_codec(top, bottom, per_position)
  other = skewed_codes(seed=1)  # With symbols that were never counted.
  for data in ((top, bottom), other, (top[:1], bottom[:1])):
    got = codec.decompress(codec.compress(*data))
    np.testing.assert_array_equal(got[0], data[0])
    np.testing.assert_array_equal(got[1], data[1])


def test_order_0_reaches_the_entropy_and_positions_go_below():
  top, bottom = skewed_codes(2000)
  sizes = []
  for per_position in (False, True):
    codec = make_codec(top, bottom, per_position)
    sizes.append(sum(len(c) for c in codec.compress(top, bottom)))
  bits = 0
  for level in (top, bottom):
    share = np.bincount(level.ravel()) / level.size
    share = share[share > 0]
    bits -= level.size * (share * np.log2(share)).sum()
  headers = 80 * 40
  assert bits / 8 < sizes[0] < 1.002 * bits / 8 + headers
  assert sizes[1] < 0.97 * sizes[0]


def test_positions_are_for_one_size():
  codec = make_codec(*skewed_codes(), per_position=True)
  with pytest.raises(UserError, match=r"one size only\.$"):
    codec.compress(np.zeros((1, 3, 3, 1), int), np.zeros((1, 6, 6, 1), int))


def test_plain_packing():
  assert static.pack_plainly(np.array([511, 0]), 512) == b"\xff\x80\x00"
  assert len(static.pack_plainly(np.zeros((10, 8)).astype(int), 512)) == 90
  codes = np.random.default_rng(0).integers(0, 300, (3, 2, 5))
  packed = static.pack_plainly(codes, 300)
  np.testing.assert_array_equal(
    static.unpack_plainly(packed, codes.shape, 300), codes
  )


def test_stored_tables_refuse_damage():
  coder = static.count_tables(
    np.zeros((1, 1, 1, 5), int), 16, 1, 1, per_position=False
  )
  data = bytearray(coder.to_bytes())
  data[30] ^= 1
  with pytest.raises(UserError, match="static model is damaged"):
    static.StaticCoder.from_bytes(bytes(data))
