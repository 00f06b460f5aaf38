import io

import growth
import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import image_formats


def smooth_images(count):
  """Gradients, which lossy formats take well; each has its own colours."""
  ramp = np.linspace(0, 1, 16)
  images = np.zeros((count, 16, 16, 3))
  for i in range(count):
    images[i, ..., 0] = ramp[:, None] * (60 + 180 * i / count)
    images[i, ..., 1] = ramp * (240 - 180 * i / count)
    images[i, ..., 2] = 255 * i / count
  return images.astype(np.uint8)


def noise(count, height=16, width=16):
  generator = np.random.default_rng(0)
  return generator.integers(0, 256, (count, height, width, 3), np.uint8)


@pytest.mark.parametrize("kind", ["webp", "jpeg"])
def test_images_are_files_of_that_format(kind):
  images = smooth_images(5)
  encoded = image_formats.encode(images, kind, 90)
  for data in encoded:
    with Image.open(io.BytesIO(data)) as image:
      assert image.format.lower() == kind and image.size == (16, 16)
  decoded = image_formats.decode(encoded, kind, (16, 16, 3))
  assert decoded.dtype == np.uint8
  assert np.abs(decoded.astype(int) - images).mean() < 6


@pytest.mark.parametrize("kind", ["lossless", "pixels"])
def test_some_formats_are_exact(kind):
  images = noise(4, 12, 10)
  encoded = image_formats.encode(images, kind)
  np.testing.assert_array_equal(
    image_formats.decode(encoded, kind, (12, 10, 3)), images
  )
  if kind == "pixels":
    assert {len(data) for data in encoded} == {12 * 10 * 3}
  else:
    assert all(data[:4] == b"RIFF" for data in encoded)


@pytest.mark.parametrize("kind", ["webp", "jpeg"])
def test_quality_costs_bytes(kind):
  sizes = [
    sum(map(len, image_formats.encode(noise(4), kind, quality)))
    for quality in (0, 20, 50, 90)
  ]
  assert sizes == sorted(set(sizes))
  assert list(image_formats.QUALITIES) == sorted(
    set(image_formats.QUALITIES), reverse=True
  )


@pytest.mark.parametrize("kind", image_formats.FORMATS)
def test_no_image_is_an_empty_array(kind):
  assert image_formats.encode(noise(0), kind) == []
  assert image_formats.decode([], kind, (16, 16, 3)).shape == (0, 16, 16, 3)


@pytest.mark.parametrize("kind", image_formats.FORMATS)
def test_damaged_images_and_those_of_another_size_are_refused(kind):
  (data,) = image_formats.encode(noise(1), kind)
  with pytest.raises(UserError, match="remembered image is damaged: restore"):
    image_formats.decode([data[: len(data) // 2]], kind, (16, 16, 3))
  with pytest.raises(UserError, match="remembered image"):
    image_formats.decode([data], kind, (8, 8, 3))


@pytest.mark.parametrize("kind", ["lossless", "webp", "jpeg"])
def test_pictures_of_many_pixels_are_not_unpacked(kind):
  """A few kilobytes may declare 400 million pixels."""
  name = image_formats.FORMATS[kind][0]
  side = 16_000
  buffer = io.BytesIO()
  Image.new("L", (side, side)).convert("RGB").save(buffer, name, quality=1)
  with growth.at_most(100), pytest.raises(UserError, match="a remembered im"):
    image_formats.decode([buffer.getvalue()], kind, (16, 16, 3))


@pytest.mark.parametrize("kind", image_formats.FORMATS)
def test_whatever_lies_there_gets_a_sentence(kind):
  (data,) = image_formats.encode(noise(1), kind)
  generator = np.random.default_rng(0)
  for number in range(200):
    changed = bytearray(data)
    for place in generator.integers(0, min(len(data), 60), 3):
      changed[place] = generator.integers(0, 256)
    if number % 2:
      del changed[generator.integers(0, len(changed)) :]
    try:
      got = image_formats.decode([bytes(changed)], kind, (16, 16, 3))
    except UserError as error:
      assert "restore the memory" in str(error)
    else:
      assert got.shape == (1, 16, 16, 3)


@pytest.mark.parametrize("limit", [100, 60, 55, 3, -1])
def test_the_finest_that_fits_is_found_and_the_first_tried_first(limit):
  tried = []

  def make(quality):
    tried.append(quality)
    return quality

  ladder = [80, 60, 50, 20, 10, 0]
  got = image_formats.finest(ladder, make, lambda plan: plan <= limit)
  assert got == max([q for q in ladder if q <= limit], default=0)
  assert tried[0] == 80
  assert len(tried) == len(set(tried)) <= 5
