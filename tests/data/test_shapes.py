import time

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf import errors
from ibdrr_tf.data import shapes


def _pixels(split):
  return split.read(tf.range(len(split.labels), dtype=tf.int64)).numpy()


@pytest.fixture(scope="module")
def loaded():
  return shapes.load_shapes(seed=3, train_per_class=70, test_per_class=20)


def test_has_twenty_balanced_classes(loaded):
  assert loaded.name == "shapes"
  assert len(set(loaded.class_names)) == 20
  assert "striped-star" in loaded.class_names
  for split, count in ((loaded.train, 70), (loaded.test, 20)):
    assert split.labels.dtype == np.int32
    assert split.image_shape == (32, 32, 3)
    np.testing.assert_array_equal(np.bincount(split.labels), [count] * 20)
  images = _pixels(loaded.train)
  assert images.dtype == np.uint8
  assert images.shape == (1400, 32, 32, 3)


def test_same_seed_same_images(loaded):
  again = shapes.load_shapes(seed=3, train_per_class=70, test_per_class=20)
  np.testing.assert_array_equal(_pixels(loaded.train), _pixels(again.train))
  np.testing.assert_array_equal(_pixels(loaded.test), _pixels(again.test))


def test_no_image_comes_twice(loaded):
  other = shapes.load_shapes(seed=4, train_per_class=20, test_per_class=20)
  negative = shapes.load_shapes(seed=-4, train_per_class=20, test_per_class=20)
  images = np.concatenate(
    [_pixels(s) for x in (loaded, other, negative) for s in (x.train, x.test)]
  )
  assert len({image.tobytes() for image in images}) == len(images)


def test_test_split_does_not_depend_on_the_size_of_the_other(loaded):
  other = shapes.load_shapes(seed=3, train_per_class=1, test_per_class=20)
  np.testing.assert_array_equal(_pixels(loaded.test), _pixels(other.test))


def test_images_use_the_range_of_values(loaded):
  images = _pixels(loaded.train)
  assert images.min() == 0 and images.max() == 255
  assert 90 < images.mean() < 150
  # Neither flat nor mere noise.
  assert 20 < images.std(axis=(1, 2)).mean() < 90


def test_linear_classifier_is_poor(loaded):
  # Ridge regression to one-hot labels, in closed form.
  train = _pixels(loaded.train).reshape(1400, -1) / 255.0
  test = _pixels(loaded.test).reshape(400, -1) / 255.0
  mean = train.mean(0)
  train, test = train - mean, test - mean
  targets = np.eye(20)[loaded.train.labels] - 1 / 20
  gram = train @ train.T + 100 * np.eye(len(train))
  scores = test @ (train.T @ np.linalg.solve(gram, targets))
  assert np.mean(scores.argmax(1) == loaded.test.labels) < 0.25


def _grid(size):
  axis = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
  return np.meshgrid(axis, axis)


@pytest.mark.parametrize(
  ("shape", "area"),
  [
    ("disc", np.pi * 0.85**2),
    ("square", (2 * 0.72) ** 2),
    ("triangle", 3 * np.sqrt(3) / 4),
    ("star", 5 * 0.45 * np.sin(np.pi / 5)),
    ("cross", 4 * 0.33 * (2 * 0.95 - 0.33)),
  ],
)
def test_silhouettes_have_the_area_of_their_shape(shape, area):
  inside = shapes._distance(shape, *_grid(400)) < 0
  assert inside.mean() * 4 == pytest.approx(area, rel=0.01)


def _peaks(plane):
  """Counts the strong lines of a spectrum: a half-plane, without the mean."""
  power = np.abs(np.fft.fft2(plane - plane.mean())) ** 2
  return np.sum(power > 0.3 * power.max()) / 2


def test_textures_have_their_spectrum():
  u, v = (axis[None] for axis in _grid(128))
  lines = {}
  for texture in ("striped", "checked", "dotted", "ringed"):
    rng = np.random.default_rng(0)
    planes = shapes._texture(rng, 16, texture, u, v, 2 / 128)
    assert planes.shape == (16, 128, 128)
    assert planes.min() >= 0 and planes.max() <= 1
    assert 0.2 < planes.mean() < 0.6
    lines[texture] = np.mean([_peaks(plane) for plane in planes])
  # Stripes have one direction, checks and dots two, rings all.
  assert lines["striped"] < lines["checked"] < lines["ringed"]
  assert lines["striped"] < lines["dotted"] < lines["ringed"]


def test_other_sizes_show_the_same_objects():
  small, large = (
    _pixels(
      shapes.load_shapes(
        seed=1, train_per_class=1, test_per_class=1, image_size=size
      ).train
    )
    for size in (16, 64)
  )
  assert large.shape == (20, 64, 64, 3)
  # The noise differs; the mean over 4x4 pixels hardly.
  pooled = large.reshape(20, 16, 4, 16, 4, 3).mean(axis=(2, 4))
  matching = np.abs(pooled - small).mean()
  crossed = np.abs(pooled - np.roll(small, 1, axis=0)).mean()
  assert matching < 0.25 * crossed


def test_is_fast_enough_for_a_demonstration():
  start = time.process_time()
  shapes.load_shapes(seed=0, train_per_class=45, test_per_class=5)
  # 5,000 images are to take 4 s, so 1,000 take 0.8 s; twice that is allowed.
  assert time.process_time() - start < 1.6


def test_refuses_what_cannot_be_drawn():
  with pytest.raises(errors.UserError, match=r"--config\.data\.image_size"):
    shapes.load_shapes(
      seed=0, train_per_class=1, test_per_class=1, image_size=8
    )
  with pytest.raises(errors.UserError, match="test image per class, not 0"):
    shapes.load_shapes(seed=0, train_per_class=1, test_per_class=0)
