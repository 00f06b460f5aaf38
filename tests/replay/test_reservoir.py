"""A reservoir is a uniform sample of all images seen."""

import numpy as np
from tiny_config import tiny_config
from tiny_step import SHAPE, Onlooker, make_tasks, pixels

from ibdrr_tf.replay.exemplar_memory import ExemplarMemory
from ibdrr_tf.replay.memory import Setting

TASKS = make_tasks({0: 30}, {1: 20}, {0: 10, 2: 20})


def reservoir(folder, seed=0, exemplars=4, **memory):
  config = tiny_config("er", exemplars)
  config.seed = seed
  config.memory.update(memory)
  return ExemplarMemory(
    Setting(config, folder, SHAPE), selected="distribution", learned="new"
  )


def test_each_image_is_as_likely_to_stay_as_any_other(tmp_path):
  """A class has its share of all images seen, whenever they came."""
  counts, runs = np.zeros(3), 30
  for seed in range(runs):
    memory = reservoir(tmp_path / str(seed), seed, total_bytes=5000)
    kept = []
    for task in TASKS:
      memory.add(task, Onlooker())
      memory.settle()
      kept.append(len(memory.exemplars.labels()))
    labels = memory.exemplars.labels()
    counts += np.bincount(labels, minlength=3) / len(labels) / runs
    assert memory.dropped > 0 and min(kept) > 4
  # 40, 20 and 20 of 80 images. The last 20 alone would be three quarters of a
  # memory that kept what came last.
  np.testing.assert_allclose(counts, [0.5, 0.25, 0.25], atol=0.1)


def test_numbers_stay_with_their_images(tmp_path):
  memory = reservoir(tmp_path)
  for task in TASKS:
    memory.add(task, Onlooker())
    memory.settle()
  assert len(memory.exemplars.labels()) == 3 * 4 and memory.dropped == 0
  again = ExemplarMemory(
    memory.setting, 2, selected="distribution", learned="new"
  )
  images, labels = again.exemplars.read()
  seen = np.concatenate([pixels(task.new) for task in TASKS])
  of_seen = np.concatenate([task.new.labels for task in TASKS])
  places = [
    int(np.flatnonzero((seen == image).all(axis=(1, 2, 3)))[0])
    for image in images
  ]
  assert (of_seen[places] == labels).all()
  # Of all numbers drawn, these are the smallest that were never given up.
  numbers = np.concatenate([again.exemplars._numbers(t) for t in TASKS])
  kept = again.exemplars._kept_numbers(again.exemplars.store.read())
  np.testing.assert_array_equal(kept, numbers[places])
  again.forget(3, 1)
  left = again.exemplars.store.read()
  assert set(left.labels) <= {0, 1} and len(left) == (labels != 1).sum()
  np.testing.assert_array_equal(
    again.exemplars._kept_numbers(left), numbers[places][labels != 1]
  )
