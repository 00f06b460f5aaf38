"""WebP and JPEG replay: what is learned from files, and from raw twins."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_step import SHAPE, files_in, pixels

from ibdrr_tf.classifier_training import train_classifier
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.replay import image_formats


@pytest.mark.parametrize("name", ["webp_replay", "jpeg_replay"])
def test_without_the_option_it_is_plain_training_on_images(
  taken, tmp_path, name
):
  """Against any classifier on images, which knows nothing of twins."""
  run = taken(name)
  task, kind = run.tasks[0], name.removesuffix("_replay")
  order = np.argsort(task.new.labels, kind="stable")
  encoded = image_formats.encode(pixels(task.new)[order], kind, 60)
  network, _ = train_classifier(
    in_memory(
      image_formats.decode(encoded, kind, SHAPE), task.new.labels[order]
    ),
    classes=2,
    image_shape=SHAPE,
    config=run.steps.config,
    strategy=tf.distribute.get_strategy(),
    folder=tmp_path,
  )
  np.testing.assert_array_equal(
    network.classifier(pixels(run.probe)), run.logits[0]
  )


def test_information_back_changes_what_is_learned_and_not_what_is_kept(
  taken, make, tmp_path
):
  run = taken("webp_replay")
  task = run.tasks[0]
  steps = make("webp_replay", tmp_path, memory={"information_back": "star"})
  network = steps.learn(task)
  losses = network.classifier.history.history["ib_loss"]
  assert all(-1 <= loss < 0 for loss in losses)
  logits = network.classifier(pixels(run.probe)).numpy()
  assert not np.allclose(logits, run.logits[0], atol=1e-3)
  assert files_in(steps.folder / "memory") == files_in(
    run.folder / "after-0" / "memory"
  )
  assert "ib_loss" not in run.histories[0]


def test_exemplars_are_chosen_by_the_network_and_looked_back_at(
  taken, make, tmp_path
):
  run = taken("webp_replay")
  options = {"information_back": "exemplars", "selection": "herding"}
  steps = make("webp_replay", tmp_path, memory=options)
  steps.learn(run.tasks[0])
  network = steps.train(run.tasks[1])
  assert "ib_loss" in network.classifier.history.history
  # Killed before the step counts: it is learned and kept again, just so.
  steps.memory.add(run.tasks[1], network)
  want = files_in(steps.folder / "memory")
  for lost in ("exemplars-001.tfrecord", "webp-001.tfrecord"):
    (steps.folder / "memory" / lost).unlink(missing_ok=True)
    again = make("webp_replay", tmp_path, step=0, memory=options)
    again.load_network(run.tasks[0])
    again.memory.add(run.tasks[1], again.train(run.tasks[1]))
    assert files_in(steps.folder / "memory") == want
