import numpy as np

from ibdrr_tf.bench import replay
from ibdrr_tf.choices import CACHES


def test_every_way_to_feed_a_step_is_timed(codec_folder):
  rows = replay.measure(codec_folder, steps=1, width=1)
  assert list(rows) == [
    "raw images",
    *(f"bit-strings, {cache} cached" for cache in CACHES),
  ]
  raw = rows["raw images"]["seconds"]
  assert raw > 0 and rows["raw images"]["ratio"] == 1.0
  for row in rows.values():
    np.testing.assert_allclose(row["ratio"] * raw, row["seconds"])
