import numpy as np

from ibdrr_tf.bench import streaming


def test_both_ways_read_all_that_was_written(codec_folder):
  rows = streaming.measure(codec_folder, images=70, steps=2, originals=20)
  assert list(rows) == ["written", *streaming.WAYS]
  assert rows["written"]["file_megabytes"] > 0
  for row in rows.values():
    assert row["images"] == 70
    np.testing.assert_allclose(row["images_per_second"], 70 / row["seconds"])
  for way in streaming.WAYS:
    row = rows[way]
    assert row["peak_megabytes"] >= row["idle_megabytes"] > 50
    assert row["seconds_before"] > 0
