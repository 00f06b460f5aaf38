"""DRR and IB-DRR: learned from reconstructions, drawn to raw images."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_step import make_tasks, pixels

from ibdrr_tf.classifier_training import train_classifier
from ibdrr_tf.data.examples import in_memory


@pytest.mark.parametrize("name", ["ib_drr", "ib_drr_star"])
def test_information_back_is_part_of_the_loss(taken, name):
  for history in taken(name).histories:
    assert all(-1 <= loss < 0 for loss in history["ib_loss"])


def test_drr_does_not_look_back(taken):
  for history in taken("drr").histories:
    assert set(history) == {"loss", "accuracy"}


def test_drr_is_plain_training_on_reconstructions(taken, codecs, tmp_path):
  """Against any classifier on images, which knows nothing of codes."""
  run = taken("drr")
  steps, task = run.steps, run.tasks[0]
  raw = pixels(task.new)
  images = codecs.vqvae.decode(*codecs.vqvae.encode(raw)).numpy()
  network, _ = train_classifier(
    in_memory(images, task.new.labels),
    classes=2,
    image_shape=task.new.image_shape,
    config=steps.config,
    strategy=tf.distribute.get_strategy(),
    folder=tmp_path,
  )
  np.testing.assert_allclose(
    network.classifier(pixels(run.probe)), run.logits[0], atol=1e-5
  )


def test_drr_starts_from_scratch_and_ib_drr_from_the_same_weights(taken):
  """Weights are drawn by the step; what is looked at differs."""
  drr, ib_drr, star = (
    taken(name).logits for name in ("drr", "ib_drr", "ib_drr_star")
  )
  assert not np.allclose(drr[0], ib_drr[0])
  # In the first step all raw images are at hand for both.
  np.testing.assert_array_equal(ib_drr[0], star[0])
  assert not np.allclose(ib_drr[2], star[2])


@pytest.mark.parametrize("cache", ["codes", "images"])
def test_reconstructions_may_be_kept_in_ram(taken, make, tmp_path, cache):
  """Decoded once or in every step: the same images, the same result."""
  run = taken("ib_drr")
  steps = make("ib_drr", tmp_path)
  steps.config.replay.cache = cache
  network = steps.train(run.tasks[0])
  np.testing.assert_allclose(
    network.classifier(pixels(run.probe)), run.logits[0], atol=1e-5
  )


def test_a_share_of_raw_images_changes_what_is_learned(taken, make, tmp_path):
  run = taken("drr")
  steps = make("drr", tmp_path)
  steps.config.replay.raw_share = 1.0
  (task,) = make_tasks({0: 6, 1: 6}, held_out=1)
  feed = steps.memory.examples(task)
  assert (feed._twins.number >= 0).all()
  network = steps.train(task)
  logits = network.classifier(pixels(run.probe)).numpy()
  assert not np.allclose(logits, run.logits[0], atol=1e-3)
