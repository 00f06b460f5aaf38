"""A few raw images of each class."""

import numpy as np
import pytest
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

from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import selection
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory
from ibdrr_tf.replay.memory import Setting


@pytest.fixture
def make(tmp_path):
  def make_memory(
    step=-1,
    kept=3,
    selected="random",
    refine=None,
    folder="memory",
    **memory,
  ):
    config = tiny_config("raw_replay", kept)
    config.memory.update(memory)
    setting = Setting(config, tmp_path / folder, SHAPE)
    return ExemplarMemory(setting, step, selected=selected, refine=refine)

  return make_memory


def keep(memory, *tasks):
  for task in tasks:
    memory.add(task, Onlooker())
    memory.settle()


def keys(images):
  return [image.tobytes() for image in images]


def test_exemplars_are_raw_images_of_their_class(make):
  tasks = make_tasks({0: 7, 1: 5}, {2: 6})
  memory = make()
  keep(memory, *tasks)
  images, labels = make(step=1).exemplars.read()
  assert labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
  owner = {}
  for task in tasks:
    owner |= dict(zip(keys(pixels(task.new)), task.new.labels, strict=True))
  assert len(set(keys(images))) == 9
  assert [owner[key] for key in keys(images)] == labels.tolist()


def test_a_step_sees_exemplars_and_all_new_images(make):
  tasks = make_tasks({0: 7, 1: 5}, {0: 2, 2: 6})
  memory = make()
  keep(memory, tasks[0])
  examples = memory.examples(tasks[1])
  old, _ = memory.exemplars.read()
  want = keys(old) + keys(pixels(tasks[1].new))
  assert keys(pixels(examples)) == want
  assert examples.labels.tolist() == [0] * 3 + [1] * 3 + list(
    tasks[1].new.labels
  )


def test_herding_takes_the_images_nearest_the_mean_first(make):
  task = make_task(0, {0: 9})
  memory = make(selected="herding")
  keep(memory, task)
  features = Onlooker().features(task.new)
  want = pixels(task.new)[selection.herd(features, 3)]
  assert keys(memory.exemplars.read()[0]) == keys(want)


@pytest.mark.parametrize("rule", ["surprise", "reward", "coverage"])
def test_rules_of_selective_replay_choose_within_a_class(make, rule):
  task = make_task(0, {0: 8, 1: 8})
  memory = make(selected=rule)
  keep(memory, task)
  images, labels = memory.exemplars.read()
  assert labels.tolist() == [0] * 3 + [1] * 3
  members = np.flatnonzero(task.new.labels == 1)
  logits = Onlooker().logits(task.new)[members]
  sure = logits[:, 1] - np.log(np.exp(logits).sum(axis=1))
  features = Onlooker().features(task.new)[members]
  order = {
    "surprise": np.argsort(sure),
    "reward": np.argsort(-sure),
    "coverage": selection.sparsest(features),
  }[rule]
  want = pixels(task.new)[members[order[:3]]]
  assert keys(images[3:]) == keys(want)


def test_a_known_class_gets_more_only_up_to_its_number(make):
  tasks = make_tasks({0: 2, 1: 6}, {0: 5, 1: 5}, {0: 5, 1: 5, 2: 1})
  memory = make()
  keep(memory, tasks[0])
  first, _ = memory.exemplars.read()
  assert memory.exemplars.labels().tolist() == [0, 0, 1, 1, 1]
  keep(memory, tasks[1])
  images, labels = memory.exemplars.read()
  assert np.bincount(labels).tolist() == [3, 3]
  assert keys(images)[:5] == keys(first)
  assert keys(images)[5] in keys(pixels(tasks[1].new))
  old = files_in(memory.folder.path)
  keep(memory, tasks[2])
  assert np.bincount(memory.exemplars.labels()).tolist() == [3, 3, 1]
  new = files_in(memory.folder.path)
  for name in ("exemplars-000.tfrecord", "exemplars-001.tfrecord"):
    assert new[name] == old[name]


def test_a_few_held_out_images_are_kept_and_not_learned_from(make):
  tasks = make_tasks({0: 5, 1: 5}, {2: 5, 0: 3}, held_out=4)
  memory = make(kept=20)
  keep(memory, *tasks)
  tests = make(step=1, kept=20).held_out()
  # A tenth of twenty, of each class and step.
  assert tests.labels.tolist() == [0, 0, 1, 1, 0, 0, 2, 2]
  want = keys(pixels(tasks[0].held_out)) + keys(pixels(tasks[1].held_out))
  assert set(keys(pixels(tests))) <= set(want)
  images, labels = memory.exemplars.read()
  assert np.bincount(labels).tolist() == [8, 5, 5]
  assert not set(keys(images)) & set(want)
  later = make_task(2, {0: 1}, 3)
  assert not set(keys(pixels(memory.examples(later)))) & set(want)


def test_every_byte_is_in_the_ledger(make):
  memory = make()
  keep(memory, *make_tasks({0: 4}, {0: 2, 1: 2}, held_out=1))
  stored = memory.stored_bytes()
  assert stored.pop("images") == 5 + 3
  assert sum(stored.values()) == bytes_in(memory.folder.path)


def test_a_forgotten_class_is_gone_and_later_labels_move_up(make):
  memory = make()
  keep(memory, *make_tasks({0: 4, 1: 4, 2: 4}, held_out=1))
  images, labels = memory.exemplars.read()
  memory.forget(1, 1)
  memory.settle()
  again = make(step=1)
  left, new_labels = again.exemplars.read()
  assert keys(left) == keys(images[labels != 1])
  assert new_labels.tolist() == [0, 0, 0, 1, 1, 1]
  assert again.held_out().labels.tolist() == [0, 1]
  stored = again.stored_bytes()
  assert stored.pop("images") == 8
  assert sum(stored.values()) == bytes_in(memory.folder.path)
  for step in (2, 3):
    again.forget(step, 0)
  again.settle()
  assert len(again.exemplars.labels()) == 0 and again.held_out() is None
  keep(again, make_task(4, {0: 4}))
  assert again.exemplars.labels().tolist() == [0, 0, 0]


def test_means_are_those_of_exemplars_and_their_flips(make):
  memory = make()
  keep(memory, *make_tasks({0: 4, 1: 4}))
  images, labels = memory.exemplars.read()

  def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)

  def features(images):
    return unit(images.reshape(len(images), -1) / 255)

  want = [
    unit(
      (features(images) + features(images[:, :, ::-1]))[labels == label].mean(0)
    )
    for label in (0, 1)
  ]
  np.testing.assert_allclose(memory.means(Onlooker()), want, atol=1e-6)


def test_new_exemplars_may_be_refined_before_they_are_kept(make):
  seen = []

  def refine(memory, task, network, images, labels):
    seen.append(labels.tolist())
    return 255 - images

  memory = make(refine=refine, selected="herding")
  tasks = make_tasks({0: 5}, {1: 5})
  keep(memory, tasks[0])
  first, _ = memory.exemplars.read()
  keep(memory, tasks[1])
  images, _ = memory.exemplars.read()
  assert seen == [[0] * 3, [1] * 3]
  assert keys(images)[:3] == keys(first)
  raw = {image.tobytes() for image in pixels(tasks[1].new)}
  assert all(key in raw for key in keys(255 - images[3:]))


@pytest.mark.parametrize("selected", ["random", "herding"])
def test_a_budget_is_filled_with_as_many_as_fit(make, selected):
  tasks = make_tasks({0: 9, 1: 9}, {2: 9}, {0: 4, 3: 9})
  total = 4_000
  memory = make(total_bytes=total, selected=selected)
  for task in tasks:
    old = memory.exemplars.read()
    memory.add(task, Onlooker())
    memory.settle()
    assert bytes_in(memory.folder.path) <= total
    images, labels = memory.exemplars.read()
    counts = np.bincount(labels)
    assert len(set(counts)) == 1 and 1 < counts[0] < 9
    if not task.step:  # One more of each class would not fit.
      more = make(kept=int(counts[0]) + 1, selected=selected, folder="more")
      keep(more, task)
      assert more.stored_bytes()["raw_exemplars"] + 1000 > total
    assert memory.dropped == len(old[1]) + len(task.new) - len(labels)
    # What stays of old classes are those that were best.
    for label in range(task.old_classes):
      mine = keys(images[labels == label])
      assert mine == keys(old[0][old[1] == label])[: len(mine)]


def test_a_large_budget_keeps_all_images_and_those_that_come_later(make):
  memory = make(total_bytes=10**9)
  keep(memory, *make_tasks({0: 5, 1: 5}, {0: 3, 1: 1}, held_out=1))
  assert np.bincount(memory.exemplars.labels()).tolist() == [8, 6]
  assert memory.dropped == 0
  assert memory.stored_bytes()["images"] == 8 + 6 + 4


def test_the_files_of_a_budget_stay_few(make):
  """Their names in the manifest need bytes too."""
  memory = make(total_bytes=50_000)
  counts = [{0: 2}, *({0: 1} for _ in range(15))]
  keep(memory, *make_tasks(*counts))
  assert len(memory.exemplars.labels()) == 17
  assert len(files_in(memory.folder.path)) < 9
  assert memory.folder.manifest_bytes < 1000


def test_choosing_looks_at_each_class_once(make):
  seen = []

  class Counting(Onlooker):
    def features(self, examples):
      seen.append(set(examples.labels))
      return super().features(examples)

  memory = make(selected="herding")
  memory.add(make_task(0, {0: 4, 1: 4}), Counting())
  assert seen == [{0}, {1}]
  # Class 0 has enough already.
  memory.add(make_task(1, {0: 4, 2: 4}, 2), Counting())
  assert seen[2:] == [{2}]


def test_nothing_is_chosen_by_the_order_of_tensors(make):
  """The same images and seed give the same files."""
  task = make_task(0, {0: 6, 1: 6})
  memory = make()
  keep(memory, task)
  first = files_in(memory.folder.path)
  set_random_seed(5)
  memory = make()
  keep(memory, task)
  assert files_in(memory.folder.path) == first
