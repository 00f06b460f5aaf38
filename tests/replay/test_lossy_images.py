import io

import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import lossy_images


def smooth_images(count):
  """Gradients, which lossy formats take well; each has its own colours."""
  ramp = np.linspace(0, 1, 16)
  images = np.zeros((count, 16, 16, 3))
  for i in range(count):
    images[i, ..., 0] = ramp[:, None] * (60 + 180 * i / count)
    images[i, ..., 1] = ramp * (240 - 180 * i / count)
    images[i, ..., 2] = 255 * i / count
  return images.astype(np.uint8)


@pytest.mark.parametrize("kind", ["webp", "jpeg"])
def test_images_are_files_of_that_format(kind):
  images = smooth_images(5)
  encoded = lossy_images.encode(images, kind, 90)
  for data in encoded:
    with Image.open(io.BytesIO(data)) as image:
      assert image.format.lower() == kind and image.size == (16, 16)
  decoded = lossy_images.decode(encoded)
  assert decoded.dtype == np.uint8
  assert np.abs(decoded.astype(int) - images).mean() < 6


@pytest.mark.parametrize("kind", ["webp", "jpeg"])
def test_quality_costs_bytes(kind):
  noise = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), np.uint8)
  sizes = [
    sum(map(len, lossy_images.encode(noise, kind, quality)))
    for quality in (0, 20, 50, 90)
  ]
  assert sizes == sorted(set(sizes))


def test_a_store_gives_back_what_was_decoded_by_phase_and_label(tmp_path):
  store = lossy_images.LossyStore(tmp_path / "memory", "webp", (2, 3))
  images = smooth_images(6)
  labels = np.array([1, 0, 1, 0, 1, 0])
  assert not store.path(0).exists()
  encoded = lossy_images.encode(images, "webp", 50)
  store.write(0, encoded, labels)
  store.write(1, encoded[:2], np.array([2, 2]))
  read, read_labels = store.read(1)
  order = [1, 3, 5, 0, 2, 4, 0, 1]
  assert read_labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
  want = lossy_images.decode(lossy_images.encode(images[order], "webp", 50))
  np.testing.assert_array_equal(lossy_images.decode(read), want)
  payload, index, count = store.sizes(1)
  assert payload == sum(
    map(len, lossy_images.encode(images[order], "webp", 50))
  )
  files = (tmp_path / "memory").iterdir()
  assert payload + index == sum(p.stat().st_size for p in files)
  assert count == 8


def test_the_best_quality_that_fits():
  sizes = {quality: 100 + 7 * quality for quality in range(101)}
  for budget in (100, 106, 107, 450, 799, 800, 10**6):
    best = max(q for q, size in sizes.items() if size <= budget)
    assert lossy_images.best_quality(sizes.get, budget) == best
  with pytest.raises(UserError, match="100 bytes"):
    lossy_images.best_quality(sizes.get, 99)
