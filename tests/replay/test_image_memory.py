"""Every image as a file: what is kept, and twins that belong to it."""

import numpy as np
import pytest
from image_memories import assert_own_twins, keep, keys, prepared
from tiny_config import tiny_config
from tiny_step import (
  SHAPE,
  Onlooker,
  bytes_in,
  files_in,
  make_task,
  make_tasks,
  pixels,
)

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import image_formats
from ibdrr_tf.replay.image_memory import ImageMemory
from ibdrr_tf.replay.memory import Setting

KEPT = 2


@pytest.fixture
def make(tmp_path):
  def make_memory(step=-1, kind="webp", folder="memory", **memory):
    config = tiny_config("webp_replay", KEPT)
    config.memory.quality = 60
    config.memory.update(memory)
    setting = Setting(config, tmp_path / folder, SHAPE)
    return ImageMemory(setting, step, kind=kind)

  return make_memory


@pytest.mark.parametrize("kind", ["webp", "jpeg", "pixels"])
def test_all_images_are_seen_as_they_are_kept(make, kind):
  tasks = make_tasks({0: 5, 1: 4}, {2: 3, 0: 2})
  memory = make(kind=kind)
  keep(memory, tasks[0])
  batch, labels = prepared(memory.examples(tasks[1]))
  assert np.bincount(labels).tolist() == [7, 4, 3]
  assert batch.raw is None
  keep(memory, tasks[1])

  def encoded(task, label):
    images = pixels(task.new)[task.new.labels == label]
    quality = None if kind == "pixels" else 60
    return image_formats.encode(images, kind, quality)

  want = [
    data
    for task, label in ((0, 0), (0, 1), (1, 0), (1, 2))
    for data in encoded(tasks[task], label)
  ]
  kept = make(step=1, kind=kind)._store.read()
  assert kept.images == want
  assert kept.labels.tolist() == [0] * 5 + [1] * 4 + [0] * 2 + [2] * 3
  decoded = image_formats.decode(want, kind, SHAPE)
  assert sorted(keys(batch.images.numpy())) == sorted(keys(decoded))
  stored = memory.stored_bytes()
  assert stored["images"] == 14
  name = "raw_exemplars" if kind == "pixels" else "payload"
  assert stored[name] == sum(map(len, want))
  assert stored[name] + stored["index"] == bytes_in(memory.folder.path)
  assert memory.quality == (None if kind == "pixels" else 60)


def test_new_images_are_appended(make):
  tasks = make_tasks({0: 5}, {0: 2, 1: 3})
  memory = make()
  keep(memory, tasks[0])
  old = files_in(memory.folder.path)["webp-000.tfrecord"]
  keep(memory, tasks[1])
  assert files_in(memory.folder.path)["webp-000.tfrecord"] == old
  assert set(files_in(memory.folder.path)) == {
    "webp-000.tfrecord",
    "webp-001.tfrecord",
    "manifest-001.json",
  }


@pytest.mark.parametrize("kind", ["webp", "pixels"])
def test_held_out_images_come_back_and_are_not_learned_from(make, kind):
  tasks = make_tasks({0: 5, 1: 4}, {0: 3}, held_out=2)
  memory = make(kind=kind)
  keep(memory, tasks[0])
  batch, labels = prepared(memory.examples(tasks[1]))
  assert np.bincount(labels).tolist() == [8, 4]
  keep(memory, tasks[1])
  tests = make(step=1, kind=kind).held_out()
  assert tests.labels.tolist() == [0, 0, 1, 1, 0, 0]
  raw = np.concatenate([pixels(task.held_out) for task in tasks])
  quality = None if kind == "pixels" else 60
  data = image_formats.encode(raw, kind, quality)
  want = keys(image_formats.decode(data, kind, SHAPE))
  assert sorted(keys(pixels(tests))) == sorted(want)
  assert not set(keys(batch.images.numpy())) & set(want)
  assert memory.stored_bytes()["images"] == 12 + 6
  memory = make(kind=kind, folder="other")
  keep(memory, make_task(0, {0: 3}))
  assert memory.held_out() is None


def test_star_looks_back_at_new_images_only(make):
  tasks = make_tasks({0: 5, 1: 4}, {0: 2, 2: 3})
  plain, star = make(folder="plain"), make(information_back="star")
  for memory in (plain, star):
    keep(memory, tasks[0])
  assert_own_twins(star.examples(tasks[1]), 5)
  # It keeps nothing more, and sees the same images in the same order.
  assert files_in(star.folder.path) == files_in(plain.folder.path)
  assert star.stored_bytes() == plain.stored_bytes()
  np.testing.assert_array_equal(
    prepared(star.examples(tasks[1]))[0].images,
    prepared(plain.examples(tasks[1]))[0].images,
  )


@pytest.mark.parametrize("selection", ["random", "herding"])
def test_exemplars_are_raw_twins_of_old_images(make, selection):
  tasks = make_tasks({0: 1, 1: 4}, {0: 3, 2: 5}, {0: 4, 1: 4, 2: 4})
  options = {"information_back": "exemplars", "selection": selection}
  memory = make(**options)
  assert_own_twins(memory.examples(tasks[0]), 5)
  keep(memory, tasks[0])
  assert_own_twins(memory.examples(tasks[1]), 1 + KEPT + 8)
  keep(memory, tasks[1])
  memory = make(step=1, **options)
  images, labels = memory._exemplars.read()
  assert np.bincount(labels).tolist() == [KEPT] * 3
  raw = {
    key: label
    for task in tasks
    for key, label in zip(keys(pixels(task.new)), task.new.labels, strict=True)
  }
  assert [raw[key] for key in keys(images)] == labels.tolist()
  assert_own_twins(memory.examples(tasks[2]), 3 * KEPT + 12)
  stored, files = memory.stored_bytes(), files_in(memory.folder.path)
  assert stored["raw_exemplars"] == sum(
    len(data) for file, data in files.items() if file.startswith("exemplars")
  )
  assert stored.pop("images") == 13
  assert sum(stored.values()) == sum(map(len, files.values()))


def test_more_exemplars_come_only_where_twins_are_still_told_by_order(make):
  """Class 0 has images without twins: those of later ones would not match."""
  tasks = make_tasks({0: 5, 1: 2}, {0: 5, 1: 5}, {2: 1})
  memory = make(information_back="exemplars")
  keep(memory, tasks[0])
  options = {"information_back": "exemplars", "exemplars_per_class": 4}
  memory = make(step=0, **options)
  keep(memory, tasks[1])
  assert np.bincount(memory._exemplars.labels()).tolist() == [2, 4]
  assert_own_twins(memory.examples(tasks[2]), 2 + 4 + 1)


def test_a_forgotten_class_is_gone_and_twins_still_match(make):
  tasks = make_tasks({0: 4, 1: 4, 2: 4}, {1: 2}, held_out=1)
  memory = make(information_back="exemplars")
  keep(memory, tasks[0])
  before = memory._store.read()
  memory.forget(1, 0)
  memory.settle()
  again = make(step=1, information_back="exemplars")
  after = again._store.read()
  rest = before.take(before.labels != 0)
  assert after.images == rest.images
  assert after.labels.tolist() == (rest.labels - 1).tolist()
  assert after.held_out.tolist() == rest.held_out.tolist()
  assert again.held_out().labels.tolist() == [0, 1]
  assert again.quality == 60
  stored = again.stored_bytes()
  assert stored.pop("images") == 10
  assert sum(stored.values()) == bytes_in(memory.folder.path)
  later = make_task(2, {1: 2, 2: 3}, 2)
  assert_own_twins(again.examples(later), 2 * KEPT + 5)
  keep(again, later)
  assert_own_twins(again.examples(make_task(3, {0: 1}, 3)), 3 * KEPT + 1)


def test_the_finest_quality_that_fits_is_taken_and_only_falls(make):
  tasks = make_tasks({0: 6, 1: 6}, {2: 6}, {0: 4, 3: 6}, {4: 12})
  free = make(folder="free", quality=30)
  keep(free, tasks[0])
  budget = bytes_in(free.folder.path) + 1000
  memory, qualities = make(total_bytes=budget), []
  for task in tasks:
    seen = prepared(memory.examples(task))[0].images.numpy()
    keep(memory, task)
    qualities.append(memory.quality)
    assert bytes_in(memory.folder.path) <= budget
    if not memory.dropped:  # What was learned from is what is kept.
      kept = memory._store.read().images
      decoded = image_formats.decode(kept, "webp", SHAPE)
      assert sorted(keys(decoded)) == sorted(keys(seen))
  assert qualities == sorted(qualities, reverse=True)
  assert 30 <= qualities[0] <= 95 and qualities[-1] < qualities[0]
  ladder = image_formats.QUALITIES
  finer = ladder[ladder.index(qualities[0]) - 1]
  if finer <= 95 and qualities[0] < 95:
    finest = make(folder="finer", quality=finer)
    keep(finest, tasks[0])
    files = bytes_in(finest.folder.path) - finest.folder.manifest_bytes
    assert files + 1000 > budget


def test_images_are_given_up_at_the_coarsest_quality_alone(make):
  tasks = make_tasks({0: 12, 1: 12}, {2: 12, 0: 3}, {3: 12}, held_out=2)
  free = make(folder="free", quality=0)
  keep(free, tasks[0])
  budget = bytes_in(free.folder.path) - free.folder.manifest_bytes + 1000
  memory, seen = make(total_bytes=budget), 0
  for task in tasks:
    before = memory.stored_bytes()["images"]
    keep(memory, task)
    seen = before + len(task.new) + len(task.held_out)
    assert bytes_in(memory.folder.path) <= budget
    assert memory.dropped == seen - memory.stored_bytes()["images"]
    if memory.dropped:
      assert memory.quality == 0
      counts = np.bincount(memory._labels())
      assert len(set(counts)) == 1
      tests = np.bincount(memory.held_out().labels)
      assert set(tests) == {1}
  assert memory.dropped


def test_twins_match_when_images_are_given_up(make):
  tasks = make_tasks({0: 12, 1: 12}, {0: 6, 2: 12}, {1: 6, 3: 12}, {0: 1})
  free = make(folder="free", quality=0, information_back="exemplars")
  keep(free, tasks[0])
  options = {"information_back": "exemplars", "exemplars_per_class": 3}
  memory = make(total_bytes=bytes_in(free.folder.path) + 900, **options)
  dropped = 0
  for task in tasks[:3]:
    keep(memory, task)
    dropped += memory.dropped
    assert bytes_in(memory.folder.path) <= memory.config.memory.total_bytes
    kept = memory._exemplars.labels()
    feed = memory.examples(
      make_task(task.step + 1, {0: 1, 1: 1}, known=task.classes)
    )
    number = feed._twins.number
    assert (number[:-2] >= 0).sum() == len(kept)
    batch, _ = prepared(feed)
    with_twin = batch.has_raw.numpy()
    images, raw = (
      part.numpy()[with_twin].astype(int) for part in (batch.images, batch.raw)
    )
    own = np.abs(images - raw).mean(axis=(1, 2, 3))
    assert own.max() < 40  # At quality 0; strangers differ by far more.
  assert dropped


def test_the_least_budget_is_named_and_does(make):
  tasks = make_tasks({0: 6, 1: 6}, {0: 4, 2: 6}, held_out=1)
  keep(make(), tasks[0])
  before = files_in(make(step=0).folder.path)
  memory = make(step=0, total_bytes=100)
  with pytest.raises(UserError, match=r"of 100 bytes is too small") as error:
    memory.add(tasks[1], Onlooker())
  memory = make(step=0)
  memory.settle()
  assert files_in(memory.folder.path) == before
  least = int(str(error.value).split(": ")[1].split()[0])
  with pytest.raises(UserError, match=str(least)):
    make(step=0, total_bytes=least - 1).add(tasks[1], Onlooker())
  memory = make(step=0, total_bytes=least)
  keep(memory, tasks[1])
  assert bytes_in(memory.folder.path) <= least
  assert np.bincount(memory._labels()).tolist() == [1, 1, 1]


def test_a_step_without_new_images_can_be_planned(make):
  """As `retrain` has it."""
  memory = make(information_back="exemplars", total_bytes=10**6)
  keep(memory, make_task(0, {0: 4}))
  nothing = make_task(1, {0: 0}, 1)
  assert memory.examples(nothing).labels.tolist() == [0] * 4
