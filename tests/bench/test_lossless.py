import numpy as np
import pytest

from ibdrr_tf.bench import lossless
from ibdrr_tf.codec.lossless import chain

IMAGES, CODES = 1500, 16


@pytest.fixture(scope="module")
def measured(codec_folder):
  generator = np.random.default_rng(0)
  codes = tuple(
    generator.geometric(chance, (IMAGES, size, size, 1)).clip(1, CODES) - 1
    for chance, size in ((0.3, 2), (0.1, 4))
  )
  return codes, lossless.measure(codec_folder, codes)


def test_forms_cost_what_they_must(measured):
  codes, rows = measured
  number = sum(level.size for level in codes)
  assert rows["plain packing"]["bits_per_code"] == 4.0
  bits = 0.0
  for level in codes:
    share = np.bincount(level.ravel()) / level.size
    share = share[share > 0]
    bits -= level.size * (share * np.log2(share)).sum()
  # Two chains, as a chain holds a thousand images.
  headers = 2 * chain.HEADER_BYTES
  assert rows["order 0"]["header_bytes"] == headers
  coded = rows["order 0"]["megabytes"] * 1e6 - headers
  # The range coder leaves out trailing zeros.
  assert bits / 8 - 4 < coded < 1.001 * bits / 8 + 8
  theirs = rows["order 0, constriction"]["megabytes"] * 1e6
  assert coded == pytest.approx(theirs, abs=16)
  assert rows["xz"]["bits_per_code"] > bits / number


def test_rows_agree_with_themselves(measured):
  codes, rows = measured
  number = sum(level.size for level in codes)
  for row in rows.values():
    assert row["megabytes"] * 8e6 / number == pytest.approx(
      row["bits_per_code"]
    )
    assert row["encode_images_per_second"] > 0
    assert row["decode_images_per_second"] > 0
  assert rows["order 0"]["seed_bytes"] == 0
  # A chain's first latents read bits that nothing had left behind.
  ours = rows["Bit-Swap"]
  assert 0 < ours["seed_bytes"] < ours["megabytes"] * 1e6
  assert ours["header_bytes"] == 2 * chain.HEADER_BYTES
