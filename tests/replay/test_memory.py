"""Which images stay when not all of them can."""

import numpy as np
import pytest
from tiny_config import tiny_config
from tiny_step import SHAPE, Onlooker, files_in, make_task

from ibdrr_tf.replay.memory import NoMemory, Setting, alike, keep_alike


def counts_of(labels, kept):
  return np.bincount(labels[kept]).tolist()


def test_classes_keep_alike_numbers():
  labels = np.array([0] * 9 + [1] * 4 + [2] * 12)
  tests = np.zeros(25, bool)
  kept = keep_alike(labels, tests, 5, (0,))
  assert counts_of(labels, kept) == [5, 4, 5]
  assert kept.tolist() == sorted(set(kept))
  np.testing.assert_array_equal(kept, keep_alike(labels, tests, 5, (0,)))
  assert kept.tolist() != keep_alike(labels, tests, 5, (1,)).tolist()


def test_a_tenth_as_many_held_out_images_stay_and_at_least_one():
  labels = np.repeat([0, 1], 60)
  tests = np.tile(np.arange(60) < 20, 2)
  for count, most in ((1, 1), (10, 1), (30, 3)):
    kept = keep_alike(labels, tests, count, (0,))
    assert counts_of(labels, kept[tests[kept]]) == [most] * 2
    assert counts_of(labels, kept[~tests[kept]]) == [count] * 2


def test_some_images_stay_before_others_in_their_order():
  """They have raw twins, which are given up from the last one on."""
  labels = np.zeros(12, int)
  first = np.arange(12) < 3
  tests = np.zeros(12, bool)
  for count in (1, 2, 3):
    kept = keep_alike(labels, tests, count, (0,), first)
    assert kept.tolist() == list(range(count))
  kept = keep_alike(labels, tests, 5, (0,), first)
  assert kept[:3].tolist() == [0, 1, 2] and len(kept) == 5


def test_alike_is_the_largest_number_that_keeps_no_more_than_wanted():
  generator = np.random.default_rng(0)
  for _ in range(20):
    labels = generator.integers(0, 4, 100)
    tests = generator.random(100) < 0.2
    wanted = generator.integers(8, 100)
    count = alike(labels, tests, wanted)

    def kept(count, labels=labels, tests=tests):
      return len(keep_alike(labels, tests, count, (0,)))

    assert kept(count) <= wanted or count == 1
    assert kept(count + 1) > wanted or kept(count) == kept(count + 1)
  assert alike(np.zeros(5, int), np.zeros(5, bool), -3) == 1


def test_no_memory_keeps_nothing_but_its_manifest(tmp_path):
  memory = NoMemory(Setting(tiny_config("finetune", 1), tmp_path, SHAPE))
  task = make_task(0, {0: 3})
  assert memory.examples(task) is task.new
  memory.add(task, Onlooker())
  memory.forget(1, 0)
  memory.settle()
  (size,) = map(len, files_in(tmp_path).values())
  assert memory.stored_bytes() == {"index": size, "images": 0}
  assert memory.held_out() is None
  with pytest.raises(ValueError, match="not after step 1"):
    memory.add(make_task(1, {0: 3}, 1), Onlooker())
