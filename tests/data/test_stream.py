import itertools

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.data import scenario as scenarios
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import (
  concatenate,
  in_memory,
  ordered_batches,
  select,
)
from ibdrr_tf.errors import UserError

SEED = stream.fold_in(0, 1)
CROPS = Augmentation(padding=2)


def split_of(labels):
  """A split whose images are filled with their own index."""
  labels = np.array(labels)
  images = np.arange(len(labels), dtype=np.uint8)[:, None, None, None]
  return in_memory(np.tile(images, (1, 4, 4, 3)), labels)


@pytest.fixture
def examples():
  scenario = scenarios.make_scenario(
    (2, 0, 1), classes=0, base_classes=1, phases=1
  )
  return select(split_of([0, 1, 2] * 10), scenario, range(1, 3))


def epoch_list(examples, epochs, **options):
  options = {"batch_size": 8, "seed": SEED, "augment": None} | options
  batches = examples.training_batches(epochs=epochs, **options)
  return [(x.numpy(), y.numpy()) for x, y in batches]


def test_select_takes_the_images_of_its_labels_only(examples):
  images = examples.read(tf.range(20, dtype=tf.int64)).numpy()
  index = images[:, 0, 0, 0]
  assert set(index % 3) == {0, 1}
  # Source class 0 is second in the order, class 1 is third.
  np.testing.assert_array_equal(examples.labels, np.where(index % 3, 2, 1))


def test_an_epoch_shows_every_example_once_with_its_label(examples):
  batches = epoch_list(examples, range(1))
  assert [len(y) for _, y in batches] == [8, 8, 4] and examples.steps(8) == 3
  index = np.concatenate([x[:, 0, 0, 0] for x, _ in batches])
  labels = np.concatenate([y for _, y in batches])
  assert sorted(index) == [i for i in range(30) if i % 3 != 2]
  np.testing.assert_array_equal(labels, np.where(index % 3, 2, 1))


def test_epochs_differ_and_resuming_repeats_what_would_have_come(examples):
  whole = epoch_list(examples, range(3), augment=CROPS)
  rest = epoch_list(examples, range(2, 3), augment=CROPS)
  for (x, y), (x2, y2) in zip(whole[6:], rest, strict=True):
    np.testing.assert_array_equal(x, x2)
    np.testing.assert_array_equal(y, y2)
  assert (whole[0][1] != whole[3][1]).any()


def test_augmentation_belongs_to_the_example_not_to_the_batch(examples):
  def by_label_and_pixels(batches):
    return sorted(
      (int(label), image.tobytes())
      for images, labels in batches
      for image, label in zip(images, labels, strict=True)
    )

  small = epoch_list(examples, range(1), augment=CROPS, batch_size=3)
  large = epoch_list(examples, range(1), augment=CROPS, batch_size=20)
  assert by_label_and_pixels(small) == by_label_and_pixels(large)


def test_concatenate_reads_each_part_where_it_is():
  scenario = scenarios.make_scenario(
    (0, 1), classes=0, base_classes=1, phases=1
  )
  split = split_of([0, 1, 1, 0, 1])
  parts = [select(split, scenario, range(i, i + 1)) for i in (0, 1)]
  joined = concatenate(parts)
  read = tf.function(joined.read)  # It must work inside a graph.
  for indices, want in (
    ([0, 1, 2, 3, 4], [0, 3, 1, 2, 4]),
    ([4, 0, 2], [4, 0, 1]),
    ([3], [2]),
  ):
    got = read(tf.constant(indices, tf.int64)).numpy()[:, 0, 0, 0]
    assert got.tolist() == want
  assert joined.labels.tolist() == [0, 0, 1, 1, 1]


def test_ordered_batches_keep_the_order(examples):
  batches = list(ordered_batches(examples, 7))
  index = np.concatenate([x.numpy()[:, 0, 0, 0] for x in batches])
  assert index.tolist() == [i for i in range(30) if i % 3 != 2]


def test_seeds_of_different_paths_differ():
  seeds = {
    tuple(stream.fold_in(seed, *path).numpy())
    for seed in (0, 1)
    for path in [(0, 0), (0, 1), (1, 0), (1, 1)]
  }
  assert len(seeds) == 8


def read_by(examples, replicas, workers, **options):
  """Images that each replica reads in an epoch, step by step."""
  each = replicas // workers
  by_replica = []
  for worker in range(workers):
    mine = range(worker * each, (worker + 1) * each)
    parts = epoch_list(
      examples, range(1), share=stream.Share(replicas, mine), **options
    )
    parts = [x[:, 0, 0, 0].tolist() for x, _ in parts]
    by_replica += [parts[number::each] for number in range(each)]
  return by_replica


@pytest.mark.parametrize(
  ("replicas", "workers", "batch_size"),
  [(1, 1, 8), (2, 1, 8), (2, 2, 8), (4, 2, 7), (3, 3, 19), (2, 2, 20)],
)
def test_replicas_share_the_very_batches_of_one(
  examples, replicas, workers, batch_size
):
  """No image is seen twice in an epoch, none is left out, none without."""
  shared = read_by(examples, replicas, workers, batch_size=batch_size)
  assert all(len(part) > 0 for parts in shared for part in parts)
  steps = examples.steps(batch_size, replicas)
  assert {len(parts) for parts in shared} == {steps}
  joined = [[*itertools.chain(*p)] for p in zip(*shared, strict=True)]
  (whole,) = read_by(examples, 1, 1, batch_size=batch_size)
  assert [*itertools.chain(*joined)] == [*itertools.chain(*whole)]
  assert joined[0] == whole[0] or steps == 1
  sizes = [len(part) for part in next(zip(*shared, strict=True))]
  assert max(sizes) - min(sizes) <= 1


def test_a_last_batch_too_small_to_divide_joins_the_one_before():
  assert stream.batch_stops(20, 19, 2).tolist() == [20]
  assert stream.batch_stops(20, 18, 2).tolist() == [18, 20]
  assert stream.batch_stops(20, 6, 4).tolist() == [6, 12, 20]
  assert stream.batch_stops(20, 10, 2).tolist() == [10, 20]
  with pytest.raises(UserError, match=r"batches of 3 .* 4 devices"):
    stream.batch_stops(3, 8, 4)
  with pytest.raises(UserError, match=r"batches of 2 .* 4 devices"):
    stream.batch_stops(20, 2, 4)


def test_numbers_of_parts_never_meet():
  shares = [stream.Share(4, range(2)), stream.Share(4, range(2, 4))]
  numbers = [list(s.numbers(range(3, 5)).as_numpy_iterator()) for s in shares]
  assert numbers == [[12, 13, 16, 17], [14, 15, 18, 19]]
  assert list(stream.WHOLE.numbers(range(3, 5)).as_numpy_iterator()) == [3, 4]


def test_no_stream_has_a_tuner_that_its_end_would_wait_for(examples):
  batches = examples.training_batches(
    batch_size=2, epochs=range(1), seed=stream.fold_in(0), augment=CROPS
  )
  ordered = ordered_batches(examples, 2)
  numbered = tf.data.Dataset.zip((stream.WHOLE.numbers(range(3)), batches))
  for dataset in (batches, ordered, numbered.map(lambda *row: row)):
    assert dataset.options().autotune.enabled is False
