"""Every image on a sheet: what is kept, within a budget, and twins."""

import numpy as np
import pytest
from image_memories import assert_own_twins, keep, keys, prepared
from tiny_config import tiny_config
from tiny_step import SHAPE, bytes_in, files_in, make_task, make_tasks, pixels

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import sheets
from ibdrr_tf.replay.memory import Setting
from ibdrr_tf.replay.sheet_memory import SheetMemory

KEPT = 2


@pytest.fixture
def make(tmp_path):
  def make_memory(step=-1, folder="memory", **memory):
    config = tiny_config("sheet_replay", KEPT)
    config.memory.quality = 80
    config.memory.update(memory)
    return SheetMemory(Setting(config, tmp_path / folder, SHAPE), step)

  return make_memory


@pytest.mark.parametrize("kind", list(sheets.FORMATS))
def test_all_images_are_seen_as_they_are_kept(make, kind):
  tasks = make_tasks({0: 5, 1: 4}, {2: 3, 0: 2})
  memory = make(sheet=kind)
  keep(memory, tasks[0])
  batch, labels = prepared(memory.examples(tasks[1]))
  assert np.bincount(labels).tolist() == [7, 4, 3]
  assert batch.raw is None
  keep(memory, tasks[1])
  want = []
  for task, label in ((0, 0), (0, 1), (1, 0), (1, 2)):
    new = tasks[task].new
    want += sheets.encode(pixels(new)[new.labels == label], kind, 80)
  memory = make(step=1, sheet=kind)
  kept = memory._store.read()
  assert kept.images == [sheet.data for sheet in want]
  assert kept.labels.tolist() == [0, 1, 0, 2]
  assert kept.counts.tolist() == [5, 4, 2, 3]
  decoded = sheets.decode(want, kind, SHAPE)
  assert sorted(keys(batch.images.numpy())) == sorted(keys(decoded))
  stored = memory.stored_bytes()
  assert stored["images"] == 14
  assert stored["payload"] == sum(len(sheet.data) for sheet in want)
  assert stored["payload"] + stored["index"] == bytes_in(memory.folder.path)


def test_held_out_images_have_sheets_of_their_own(make):
  tasks = make_tasks({0: 5, 1: 4}, {0: 3}, held_out=2)
  memory = make()
  keep(memory, tasks[0])
  _, labels = prepared(memory.examples(tasks[1]))
  assert np.bincount(labels).tolist() == [8, 4]
  keep(memory, tasks[1])
  tests = make(step=1).held_out()
  assert tests.labels.tolist() == [0, 0, 1, 1, 0, 0]
  assert memory.stored_bytes()["images"] == 12 + 6
  memory = make(folder="other")
  keep(memory, make_task(0, {0: 3}))
  assert memory.held_out() is None


def test_new_sheets_are_appended_and_old_ones_stay(make):
  tasks = make_tasks({0: 5}, {0: 2, 1: 3})
  memory = make()
  keep(memory, tasks[0])
  old = files_in(memory.folder.path)["sheets-000.tfrecord"]
  keep(memory, tasks[1])
  assert files_in(memory.folder.path)["sheets-000.tfrecord"] == old


def test_exemplars_are_raw_twins(make):
  tasks = make_tasks({0: 3, 1: 4}, {2: 5}, {0: 1})
  memory = make(information_back="exemplars")
  keep(memory, tasks[0])
  assert_own_twins(memory.examples(tasks[1]), 2 * KEPT + 5)
  keep(memory, tasks[1])
  memory = make(step=1, information_back="exemplars")
  assert_own_twins(memory.examples(tasks[2]), 3 * KEPT + 1)


def test_a_budget_holds_by_coarser_and_then_by_fewer_images(make):
  tasks = make_tasks({0: 20, 1: 20}, {2: 20}, {3: 40}, held_out=2)
  free = make(folder="free", sheet="webp")
  keep(free, tasks[0])
  budget = bytes_in(free.folder.path) + 1000
  memory, qualities = make(total_bytes=budget, sheet="webp"), []
  for task in tasks:
    keep(memory, task)
    qualities.append(memory.quality)
    assert bytes_in(memory.folder.path) <= budget
    assert memory.dropped == 0
  assert qualities == sorted(qualities, reverse=True)
  assert qualities[0] > qualities[-1]
  assert memory.stored_bytes()["images"] == 100 + 8
  smaller = make(folder="small", total_bytes=2_300, sheet="webp")
  for task in tasks:
    keep(smaller, task)
    assert bytes_in(smaller.folder.path) <= 2_300
  assert smaller.quality == 0
  assert smaller.dropped > 0
  assert len(set(np.bincount(smaller._labels()))) <= 2
  with pytest.raises(UserError, match="of 900 bytes is too small"):
    make(folder="none", total_bytes=900).examples(tasks[0])


def test_a_quality_falls_by_large_steps_or_not_at_all(make):
  (task,) = make_tasks({0: 4})
  memory = make(total_bytes=1_000_000)
  keep(memory, task)
  assert memory.quality == 95
  assert memory.ladder()[:3] == [95, 83, 80]
  assert memory.ladder()[-2:] == [2, 0]
  # With room enough, sheets stay as they are.
  keep(memory, make_task(1, {1: 4}))
  assert memory.quality == 95


def test_a_forgotten_class_is_gone(make):
  (task,) = make_tasks({0: 4, 1: 4, 2: 4}, held_out=1)
  memory = make(information_back="exemplars")
  keep(memory, task)
  memory.forget(1, 1)
  memory.settle()
  memory = make(step=1, information_back="exemplars")
  assert memory._labels().tolist() == [0] * 4 + [1] * 4
  assert memory.held_out().labels.tolist() == [0, 1]
  assert memory.quality == 80


def test_sheets_of_another_format_are_not_taken_for_ours(make):
  keep(make(sheet="webp"), make_task(0, {0: 3}))
  with pytest.raises(UserError, match="has webp sheets: give --config"):
    make(step=0, sheet="avif")
