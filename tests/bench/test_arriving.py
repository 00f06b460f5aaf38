"""Memories that are filled step by step, as `bench accuracy --steps` does."""

import pathlib

import numpy as np
import pytest

from ibdrr_tf.bench import arriving
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.replay.codec import reconstruct


def plain(classes, of_a_class, size=16):
  """Images of one colour each, all different, sorted by class."""
  count = classes * of_a_class
  colours = np.random.default_rng(0).integers(30, 226, (count, 1, 1, 3))
  images = np.broadcast_to(colours, (count, size, size, 3)).astype(np.uint8)
  labels = np.repeat(np.arange(classes, dtype=np.int32), of_a_class)
  return images, labels


@pytest.mark.parametrize("name", ["avif sheets", "webp sheets", "webp files"])
def test_all_images_come_back_in_order_and_within_the_budget(name):
  images, labels = plain(4, 6)
  form = arriving.arriving_rivals(2)[name]
  room = 24 * 200
  kept = form(images, labels, room, 1.0)
  assert kept.payload <= room
  assert kept.models == 0
  assert kept.setting.endswith("after 2 steps")
  # Each is still nearest to its own colour.
  means = kept.images.reshape(24, -1, 3).mean(axis=1)
  colours = images[:, 0, 0].astype(float)
  distances = np.linalg.norm(means[:, np.newaxis] - colours, axis=2)
  np.testing.assert_array_equal(distances.argmin(axis=1), np.arange(24))


def test_codes_are_those_of_the_images_and_models_count_by_share(codec_folder):
  images, labels = plain(3, 4)
  form = arriving.arriving_form("drr", 3, codec_folder)
  kept = form(images, labels, 1e6, 10.0)
  stored = (pathlib.Path(codec_folder) / "vqvae.ibvq").read_bytes()
  want = reconstruct(vqvae_file.from_bytes(stored), images)
  np.testing.assert_array_equal(kept.images, want)
  assert kept.models > len(stored)
  assert kept.payload < images.nbytes


def test_a_budget_that_is_too_small_is_no_form():
  images, labels = plain(2, 4)
  assert (
    arriving.arriving_rivals(2)["avif sheets"](images, labels, 1200, 1.0)
    is None
  )
