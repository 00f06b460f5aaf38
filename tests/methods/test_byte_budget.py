"""A byte budget holds after every step, for each method that can keep less."""

import re

import numpy as np
import pytest
from tiny_step import (
  Onlooker,
  assert_ledger_matches,
  bytes_in,
  files_in,
  make_tasks,
)

from ibdrr_tf.errors import UserError

# New classes, more of old ones, both at once, and a class of few images.
TASKS = make_tasks(
  {0: 8, 1: 8}, {2: 8}, {0: 4, 1: 4}, {1: 3, 3: 8}, {4: 2}, held_out=2
)
CASES = {
  "raw_replay": {},
  "upper_bound": {},
  "icarl": {},
  "gdumb": {},
  "der_pp": {},
  "er": {},
  "mrdc": {},
  "latent_replay": {},
  "remind": {},
  "webp_replay": {},
  "jpeg_replay": {},
  "sheet_replay": {"sheet": "webp"},
  "webp_replay, exemplars": {"information_back": "exemplars"},
  "drr": {},
  "ib_drr": {},
}
RAW = (
  *("raw_replay", "upper_bound", "icarl", "gdumb", "der_pp", "mrdc"),
  *("er", "latent_replay", "remind"),
)
cases = pytest.mark.parametrize("case", CASES)


@pytest.fixture
def open_steps(make, tmp_path):
  def make_steps(case, folder="w", step=-1, **memory):
    options = {**CASES[case], **memory}
    return make(case.split(",")[0], tmp_path / folder, step, options)

  return make_steps


def labels_of(memory):
  """Labels of the images to learn from."""
  if hasattr(memory, "exemplars"):
    return memory.exemplars.labels()
  return memory._labels()


def bytes_of(steps):
  return bytes_in(steps.folder / "memory", steps.folder / "codec")


def tight_budget(open_steps, case):
  """Bytes for about half of all images."""
  free = open_steps(case, "free", quality=10)
  free.keep(TASKS[0])
  if case == "ib_drr":  # Exemplars are given up before codes are.
    return bytes_of(free) - free.memory.stored_bytes()["raw_exemplars"] + 900
  if case == "mrdc":  # It keeps few where files are mostly headers.
    return bytes_of(free) + 4500
  return bytes_of(free) + (2500 if case in RAW else 1200)


@cases
def test_it_holds_after_every_step(open_steps, case):
  budget = tight_budget(open_steps, case)
  steps = open_steps(case, total_bytes=budget)
  labels, qualities, dropped = np.zeros(0, int), [], 0
  for task in TASKS:
    before = steps.memory.stored_bytes()["images"]
    steps.keep(task)
    ledger = assert_ledger_matches(steps)
    assert bytes_of(steps) == ledger.total <= budget
    there = np.concatenate([labels, task.new.labels])
    labels = labels_of(steps.memory)
    counts, there = (np.bincount(part, minlength=5) for part in (labels, there))
    # All classes keep alike numbers, but for those that have no more.
    if case != "er":  # A reservoir does not look at classes.
      assert counts.tolist() == np.minimum(there, counts.max()).tolist()
      assert (counts[: task.classes] > 0).all()
    dropped += steps.memory.dropped
    if case == "upper_bound" or case not in RAW:
      added = len(task.new) + len(task.held_out)
      assert ledger.images == before + added - steps.memory.dropped
    qualities.append(getattr(steps.memory, "quality", None))
  assert dropped > 0
  if qualities[0] is not None:
    assert qualities == sorted(qualities, reverse=True)
    assert qualities[0] > qualities[-1]


@cases
def test_a_budget_too_small_names_the_least_that_would_do(open_steps, case):
  for task in TASKS[:2]:
    open_steps(case, step=task.step - 1).keep(task)
  folder = open_steps(case, step=1).folder
  before = files_in(folder / "memory")

  def add(total):
    steps = open_steps(case, step=1, total_bytes=total)
    steps.memory.add(TASKS[2], Onlooker())
    return steps

  with pytest.raises(UserError, match="a memory of 77 bytes is too small") as e:
    add(77)
  # Nothing is lost: the step before is whole.
  open_steps(case, step=1).memory.settle()
  assert files_in(folder / "memory") == before
  (least,) = re.findall(r": (\d+) would do", str(e.value))
  with pytest.raises(UserError, match=f": {least} would do"):
    add(int(least) - 1)
  steps = add(int(least))
  steps.memory.settle()
  assert bytes_of(steps) <= int(least)
  if case != "er":
    assert np.bincount(labels_of(steps.memory)).tolist() == [1, 1, 1]
  assert len(labels_of(steps.memory)) == 3


@cases
def test_what_is_named_before_training_will_do_after_it(open_steps, case):
  for task in TASKS[:2]:
    open_steps(case, step=task.step - 1).keep(task)
  memory = open_steps(case, step=1, total_bytes=77).memory
  with pytest.raises(UserError, match="too small") as error:
    memory.examples(TASKS[2])
  (named,) = re.findall(r": (\d+) would do", str(error.value))
  steps = open_steps(case, step=1, total_bytes=int(named))
  steps.memory.examples(TASKS[2])
  steps.keep(TASKS[2])
  assert bytes_of(steps) <= int(named)


@cases
def test_a_large_budget_gives_nothing_up(open_steps, case):
  steps = open_steps(case, total_bytes=10**8)
  for task in TASKS[:3]:
    steps.keep(task)
    assert steps.memory.dropped == 0
  assert np.bincount(labels_of(steps.memory)).tolist() == [12, 12, 8]
  assert getattr(steps.memory, "quality", None) in (None, 95)


@cases
def test_a_forgotten_class_makes_room(open_steps, case):
  budget = tight_budget(open_steps, case)
  steps = open_steps(case, total_bytes=budget)
  for task in TASKS[:3]:
    steps.keep(task)
  before = bytes_of(steps)
  steps.forget(3, 1)
  assert assert_ledger_matches(steps).total < before
  assert set(labels_of(steps.memory)) == {0, 1}
