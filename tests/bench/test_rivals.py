import importlib.util
import lzma

import numpy as np
import pytest

from ibdrr_tf.bench import lossless, rivals
from ibdrr_tf.codec.lossless import static

SHAPE, CODES = (48, 2, 3, 5), 512


@pytest.fixture
def planes():
  skewed = np.random.default_rng(0).geometric(0.01, SHAPE)
  return skewed.clip(1, CODES).astype(np.int32) - 1


def test_plain_packing_is_nine_bits(planes):
  row = lossless.timed(rivals.plain(SHAPE, CODES), [planes])
  assert row["bits_per_code"] == 9.0
  assert row["megabytes"] == planes.size * 9 / 8 / 1e6
  assert row["header_bytes"] == row["model_bytes"] == 0


@pytest.mark.parametrize("codes", [16, 256, 257, CODES])
def test_files_hold_the_codes_and_no_more(planes, codes):
  planes = planes % codes
  for name, coder in rivals.file_coders(SHAPE, codes).items():
    strings = coder.compress(planes)
    np.testing.assert_array_equal(coder.decompress(strings)[0], planes)
    if name == "xz":
      # Low bytes, then the ninth bits: what any xz reads.
      data = lzma.decompress(strings[0])
      assert data[: planes.size] == (planes & 255).astype(np.uint8).tobytes()
      assert len(data) == planes.size + -(-planes.size // 8)


@pytest.mark.parametrize("per_position", [False, True])
def test_constriction_needs_what_the_tables_say(planes, per_position):
  tables = static.count_tables(
    planes, CODES, 1, 1, per_position=per_position
  ).tables
  row = lossless.timed(rivals.constriction_coder(tables, SHAPE), [planes], 7)
  bits = 0.0
  for place in range(6):
    for plane in range(5):
      share = np.diff(tables[place % len(tables), plane]) / (1 << 16)
      bits -= np.log2(share[planes.reshape(48, 6, 5)[:, place, plane]]).sum()
  # It writes whole words of 32 bits.
  assert bits <= row["bits_per_code"] * planes.size * 1.001
  assert row["bits_per_code"] * planes.size < 1.001 * bits + 64
  assert row["model_bytes"] == 7


def test_another_code_that_comes_back_is_an_error(planes):
  liar = rivals.Coder(lambda planes: [b"x"], lambda strings: (planes + 1,))
  with pytest.raises(AssertionError):
    lossless.timed(liar, [planes])


def test_what_is_not_installed_is_said(planes, monkeypatch):
  find = importlib.util.find_spec
  monkeypatch.setattr(
    importlib.util,
    "find_spec",
    lambda name: None if name in ("constriction", "zstandard") else find(name),
  )
  assert [s.split(" ")[0] for s in rivals.missing()] == [
    "constriction",
    "zstandard",
  ]
  assert all("pip install" in sentence for sentence in rivals.missing())
  assert list(rivals.file_coders(SHAPE, CODES)) == ["xz"]
  assert rivals.constriction_coder(np.zeros((1, 5, 3), int), SHAPE) is None
  assert lossless.coder_speed() is None
