import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.bench import growth
from ibdrr_tf.codec.image_codec import load_image_codec


def noise(count, size=16):
  generator = np.random.default_rng(0)
  return generator.integers(0, 256, (count, size, size, 3)).astype(np.uint8)


def test_rows_are_about_the_images_given(codec_folder):
  images = noise(12)
  tables = growth.measure_apart(
    codec_folder,
    {"count": {"few": images[:4], "all": images}, "one": {"two": images[:2]}},
  )
  assert tables["one"]["two"]["images"] == 2
  assert tables["one"]["two"]["ratio_of_seconds_per_code"] == 1.0
  rows = tables["count"]
  assert [row["images"] for row in rows.values()] == [4, 12]
  assert rows["few"]["ratio_of_seconds_per_code"] == 1.0
  codec = load_image_codec(codec_folder)
  chains = codec.codes.encode_chains(*codec.encode(images), 0).numpy()
  # 16 pixels a side are 2x2 codes of the top and 4x4 of the bottom.
  assert rows["all"]["bytes_per_code"] == sum(map(len, chains)) / (12 * 20)
  assert 0 <= rows["few"]["peak_megabytes"] <= rows["all"]["peak_megabytes"]
  assert rows["all"]["peak_megabytes"] < 100  # The parent holds more.


def test_the_peak_is_the_process_own(tmp_path, monkeypatch):
  status = tmp_path / "status"
  status.write_text("VmPeak:\t  999 kB\nVmHWM:\t  123 kB\nVmRSS:\t 99 kB\n")
  held = growth.peak_bytes()
  monkeypatch.setattr(growth, "_STATUS", status)
  assert growth.peak_bytes() == 123 * 1024
  # Elsewhere it is getrusage's, which may only be larger.
  monkeypatch.setattr(growth, "_STATUS", tmp_path / "none")
  assert growth.peak_bytes() >= 0.99 * held > 50e6


def test_counts_stop_at_what_there_is():
  sets = growth.of_counts(noise(7), (2, 5, 9, 50))
  assert [len(images) for images in sets.values()] == [2, 5, 7]


@pytest.mark.parametrize("from_folder", [False, True])
def test_images_come_at_every_size(tmp_path, from_folder):
  for number, image in enumerate(noise(3)):
    Image.fromarray(image).save(tmp_path / f"{number}.png")
  images = str(tmp_path) if from_folder else noise(3)
  sets = growth.at_sizes(images, (16, 24), 2)
  assert [i.shape for i in sets.values()] == [(2, 16, 16, 3), (2, 24, 24, 3)]
  np.testing.assert_array_equal(sets["16 pixels"], noise(3)[:2])
