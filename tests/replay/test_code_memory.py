"""Every image as codes: what is kept, when, and whose raw twin is whose."""

import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config
from tiny_step import (
  Onlooker,
  Steps,
  TinyCodecs,
  assert_ledger_matches,
  bytes_in,
  files_in,
  make_task,
  make_tasks,
  pixels,
)

from ibdrr_tf.errors import UserError

KEPT = 2


@pytest.fixture(scope="module")
def codecs():
  return TinyCodecs()


@pytest.fixture
def make(tmp_path, codecs):
  codecs.fits.clear()

  def make_steps(name="drr", step=-1, folder="w", refit="always", **memory):
    config = tiny_config(name, KEPT)
    config.bitswap.refit = refit
    config.memory.update(memory)
    return Steps(config, tmp_path / folder, codecs, step)

  return make_steps


def assert_twins_match(steps, task, count):
  """Encodes every twin again: its codes are those of its example."""
  feed = steps.memory.examples(task)
  codes, twins = feed._codes, feed._twins
  with_twin = np.flatnonzero(twins.number >= 0)
  assert len(with_twin) == count
  assert len(set(twins.number[with_twin])) == count
  numbers = tf.constant(twins.number[with_twin])
  vqvae = steps.memory.setting.codec.vqvae
  top, bottom = vqvae.encode(twins.raw.read(numbers))
  np.testing.assert_array_equal(top, codes.top[with_twin])
  np.testing.assert_array_equal(bottom, codes.bottom[with_twin])
  np.testing.assert_array_equal(
    twins.raw.labels[twins.number[with_twin]], codes.labels[with_twin]
  )


def codes_of(codecs, examples, label):
  """Codes of the images of a class, as rows of numbers, in any order."""
  images = pixels(examples)[examples.labels == label]
  top, bottom = codecs.vqvae.encode(images)
  return rows(top.numpy(), bottom.numpy())


def rows(top, bottom):
  count = len(top)
  both = [top.reshape(count, -1), bottom.reshape(count, -1)]
  return sorted(map(tuple, np.concatenate(both, axis=1)))


def test_every_image_is_remembered_and_nothing_raw(make, codecs):
  tasks = make_tasks({0: 5, 1: 4}, {0: 3, 2: 4})
  steps = make()
  for task in tasks:
    steps.keep(task)
  kept = make(step=1).memory.read()
  assert np.bincount(kept.labels).tolist() == [8, 4, 4]
  for label in range(3):
    mine = kept.take(kept.labels == label)
    want = [
      row
      for task in tasks
      if label in task.new.labels
      for row in codes_of(codecs, task.new, label)
    ]
    assert rows(mine.top, mine.bottom) == sorted(want)
  ledger = assert_ledger_matches(steps)
  assert ledger.images == 16 and ledger.codec_vqvae == 1234
  assert ledger.raw_exemplars == 0
  assert steps.memory.examples(tasks[1])._twins is None


def test_a_step_sees_reconstructions_of_old_and_new_images(make, codecs):
  tasks = make_tasks({0: 3, 1: 2}, {0: 2, 2: 2})
  steps = make()
  steps.keep(tasks[0])
  codes = steps.memory.examples(tasks[1])._codes
  assert codes.labels[:5].tolist() == [0, 0, 0, 1, 1]
  np.testing.assert_array_equal(codes.labels[5:], tasks[1].new.labels)
  top, _ = codecs.vqvae.encode(pixels(tasks[1].new))
  np.testing.assert_array_equal(codes.top[5:], top)


@pytest.mark.parametrize(
  ("refit", "fits"),
  [
    # Images: 4, then 5, 9, 10, 14.
    ("always", [4, 5, 9, 10, 14]),
    # By half: 9 is more than 6, 14 more than 13.5.
    ("growth", [4, 9, 14]),
    ("never", [4]),
  ],
)
def test_when_bit_swap_is_fitted(make, codecs, refit, fits):
  steps = make(refit=refit)
  tasks = make_tasks({0: 4}, {0: 1}, {1: 4}, {1: 1}, {2: 4})
  for number, task in enumerate(tasks):
    before = files_in(steps.folder / "memory") if number else {}
    models = files_in(steps.folder / "codec")
    seen = len(codecs.fits)
    steps.keep(task)
    after = files_in(steps.folder / "memory")
    own = f"codes-{number:03d}.tfrecord"
    if len(codecs.fits) > seen:  # All is written anew, with another model.
      assert [name for name in after if name.startswith("codes")] == [own]
    else:  # Only a file is added.
      assert files_in(steps.folder / "codec") == models
      old = {n: data for n, data in before.items() if n.startswith("codes")}
      assert {n: after[n] for n in old} == old
      assert set(after) - set(old) == {own, f"manifest-{number:03d}.json"}
    assert_ledger_matches(steps)
  assert codecs.fits == fits
  kept = make(step=4, refit=refit).memory.read()
  assert np.bincount(kept.labels).tolist() == [5, 5, 4]


def test_a_model_that_comes_with_the_codec_is_never_fitted(make, codecs):
  first = make(folder="first")
  first.keep(make_task(0, {0: 3}))
  codecs.fits.clear()
  steps = make(refit="never")
  model = first.folder / "codec" / "bitswap.ibbs"
  shutil.copy(model, steps.folder / "codec")
  steps.keep(make_task(0, {0: 4}))
  assert codecs.fits == []
  assert len(make(step=0).memory.read()) == 4


def test_held_out_images_come_back_and_are_not_learned_from(make, codecs):
  tasks = make_tasks({0: 4, 1: 3}, {0: 2, 2: 3}, held_out=2)
  steps = make("ib_drr", refit="never")
  for task in tasks:
    steps.keep(task)
  steps = make("ib_drr", step=1, refit="never")
  tests = steps.memory.held_out()
  assert tests.labels.tolist() == [0, 0, 1, 1, 0, 0, 2, 2]
  raw = np.concatenate(
    [
      pixels(task.held_out)[np.argsort(task.held_out.labels, kind="stable")]
      for task in tasks
    ]
  )
  want = codecs.vqvae.decode(*codecs.vqvae.encode(raw))
  np.testing.assert_array_equal(pixels(tests), want)
  later = make_task(2, {1: 1}, 3)
  codes = steps.memory.examples(later)._codes
  assert np.bincount(codes.labels).tolist() == [6, 4, 3]
  assert not codes.held_out.any()
  assert_twins_match(steps, later, 3 * KEPT + 1)
  assert assert_ledger_matches(steps).images == 12 + 8


@pytest.mark.parametrize("selection", ["random", "herding"])
@pytest.mark.parametrize("refit", ["always", "never"])
def test_ib_drr_keeps_raw_twins_of_old_images(make, selection, refit):
  """Class 0 has one image at first, so it gets a second exemplar later."""
  tasks = make_tasks({0: 1, 1: 4}, {0: 3, 2: 5}, {0: 4, 1: 4, 2: 4})
  options = {"refit": refit, "selection": selection}
  steps = make("ib_drr", **options)
  assert_twins_match(steps, tasks[0], 5)
  steps.keep(tasks[0])
  assert_twins_match(steps, tasks[1], 1 + KEPT + 8)
  steps.keep(tasks[1])
  steps = make("ib_drr", step=1, **options)
  assert_twins_match(steps, tasks[2], 3 * KEPT + 12)
  assert np.bincount(steps.memory._exemplars.labels()).tolist() == [KEPT] * 3
  ledger = assert_ledger_matches(steps)
  assert ledger.raw_exemplars > 0 and ledger.images == 13


def test_ib_drr_star_has_twins_of_new_images_only(make):
  tasks = make_tasks({0: 3, 1: 4}, {0: 2, 2: 5})
  steps = make("ib_drr_star")
  steps.keep(tasks[0])
  assert_twins_match(steps, tasks[1], 7)
  assert assert_ledger_matches(steps).raw_exemplars == 0


def test_herding_looks_at_each_class_once_a_step(make):
  seen = []

  class Counting(Onlooker):
    def features(self, examples):
      seen.append(sorted(examples.labels))
      return super().features(examples)

  steps = make("ib_drr", selection="herding")
  steps.keep(make_task(0, {0: 3, 1: 4}), Counting())
  assert seen == [[0] * 3, [1] * 4]


@pytest.mark.parametrize("refit", ["always", "never"])
def test_a_forgotten_class_is_gone_and_twins_still_match(make, refit):
  tasks = make_tasks({0: 4, 1: 4, 2: 4}, {2: 3}, held_out=1)
  steps = make("ib_drr", refit=refit)
  for task in tasks:
    steps.keep(task)
  before = steps.memory.read()
  steps.forget(2, 1)
  again = make("ib_drr", step=2, refit=refit)
  after, rest = again.memory.read(), before.take(before.labels != 1)
  np.testing.assert_array_equal(after.top, rest.top)
  np.testing.assert_array_equal(after.held_out, rest.held_out)
  np.testing.assert_array_equal(after.labels, rest.labels - (rest.labels > 1))
  assert again.memory._exemplars.labels().tolist() == [0, 0, 1, 1]
  assert set(again.memory.held_out().labels) == {0, 1}
  assert_ledger_matches(again)
  later = make_task(3, {1: 2, 2: 3}, 2)
  assert_twins_match(again, later, 2 * KEPT + 5)
  again.keep(later)
  assert_twins_match(again, make_task(4, {0: 1}, 3), 3 * KEPT + 1)
  assert_ledger_matches(again)


def test_all_classes_can_be_forgotten_and_learned_again(make):
  steps = make("ib_drr")
  steps.keep(make_task(0, {0: 3, 1: 3}))
  steps.forget(1, 0)
  steps.forget(2, 0)
  assert steps.memory.held_out() is None
  assert assert_ledger_matches(steps).images == 0
  task = make_task(3, {0: 3})
  assert_twins_match(steps, task, 3)
  steps.keep(task)
  assert steps.memory.read().labels.tolist() == [0] * 3


@pytest.mark.parametrize("refit", ["always", "never"])
def test_a_budget_holds_and_twins_match(make, refit):
  tasks = make_tasks(
    {0: 9, 1: 9}, {2: 9}, {0: 4}, {1: 2, 3: 9}, {4: 1}, held_out=2
  )
  free = make("ib_drr", folder="free", refit=refit)
  free.keep(tasks[0])
  budget = bytes_in(free.folder / "memory", free.folder / "codec") + 700
  steps = make("ib_drr", refit=refit, total_bytes=budget)
  dropped, labels = [], np.zeros(0, int)
  for task in tasks:
    before = steps.memory.stored_bytes()["images"]
    steps.keep(task)
    total = assert_ledger_matches(steps).total
    assert total <= budget
    added = len(task.new) + len(task.held_out)
    dropped.append(steps.memory.dropped)
    assert steps.memory.stored_bytes()["images"] == before + added - dropped[-1]
    there = np.concatenate([labels, task.new.labels])
    labels = steps.memory._labels()
    # A class with fewer images than the others keeps them all.
    counts, there = (np.bincount(part, minlength=5) for part in (labels, there))
    assert counts.tolist() == np.minimum(there, counts.max()).tolist()
    later = make_task(task.step + 1, {0: 1}, task.classes)
    raw = steps.memory._exemplars.labels()
    assert_twins_match(steps, later, len(raw) + 1)
    assert set(np.bincount(raw)) <= {0, len(raw) // max(1, len(set(raw)))}
  assert sum(map(bool, dropped)) > 1
  assert counts[4] == 1


def test_exemplars_go_before_images_do(make):
  tasks = make_tasks({0: 3}, {1: 60})
  free = make("drr", folder="free", refit="never")
  for task in tasks:
    free.keep(task)
  budget = assert_ledger_matches(free).total
  budget += 1000 - free.memory.folder.manifest_bytes + 10
  steps = make("ib_drr", refit="never", total_bytes=budget)
  steps.keep(tasks[0])
  assert len(steps.memory._exemplars.labels()) == KEPT
  steps.keep(tasks[1])
  assert len(steps.memory._exemplars.labels()) == 0
  assert steps.memory.dropped == 0 and len(steps.memory.read()) == 63
  assert assert_ledger_matches(steps).total <= budget


def test_twins_match_when_fewer_images_stay_than_had_twins(make):
  """The first images of a class stay, in order, and no more exemplars."""
  tasks = make_tasks({0: 6, 1: 6}, {0: 6, 1: 6, 2: 6}, {0: 5}, {1: 1})
  steps = make("ib_drr", exemplars_per_class=5)
  steps.keep(tasks[0])
  with pytest.raises(UserError, match="too small") as error:
    make("ib_drr", step=0, total_bytes=9).memory.add(tasks[1], Onlooker())
  # A little more than the least: two or three images, and some exemplars.
  budget = least_of(error) + 700
  options = {"exemplars_per_class": 5, "total_bytes": budget}
  steps = make("ib_drr", step=0, **options)
  steps.keep(tasks[1])
  assert steps.memory.dropped
  for task in tasks[2:]:
    raw = steps.memory._exemplars.labels()
    assert_twins_match(steps, task, len(raw) + len(task.new))
    steps.keep(task)
    assert assert_ledger_matches(steps).total <= budget


def least_of(error):
  """The number of bytes that an error names."""
  return int(str(error.value).split(": ")[-1].split()[0])


def test_the_least_budget_does_for_appended_chains(make):
  """`test_byte_budget` has it for chains that are written anew."""
  refit = "never"
  tasks = make_tasks({0: 6, 1: 6}, {0: 4, 2: 6}, held_out=1)
  make(refit=refit).keep(tasks[0])
  folder = make(refit=refit, step=0).folder
  before = files_in(folder / "memory") | files_in(folder / "codec")
  with pytest.raises(UserError, match="of 100 bytes is too small") as error:
    make(refit=refit, step=0, total_bytes=100).memory.add(tasks[1], Onlooker())
  make(refit=refit, step=0).memory.settle()
  assert files_in(folder / "memory") | files_in(folder / "codec") == before
  least = least_of(error)
  with pytest.raises(UserError, match=f"{least} would do"):
    steps = make(refit=refit, step=0, total_bytes=least - 1)
    steps.memory.add(tasks[1], Onlooker())
  steps = make(refit=refit, step=0, total_bytes=least)
  steps.keep(tasks[1])
  assert assert_ledger_matches(steps).total <= least
  assert np.bincount(steps.memory._labels()).tolist() == [1, 1, 1]


def test_the_files_of_a_budget_stay_few(make):
  """Their names in the manifest need bytes too."""
  steps = make(refit="never", total_bytes=10**6)
  for task in make_tasks(*({0: 1} for _ in range(10))):
    steps.keep(task)
  assert len(steps.memory.read()) == 10
  assert len(files_in(steps.folder / "memory")) < 9


class Killed(BaseException):
  """Stands for the end of the process: nothing may catch it."""


def dying(operation, left):
  """An operation that fails once so many of them have been done."""

  def wrapped(*args, **kwargs):
    if not left[0]:
      raise Killed
    left[0] -= 1
    return operation(*args, **kwargs)

  return wrapped


def test_killed_at_any_instant_a_step_is_taken_again(make, monkeypatch):
  """Codes and exemplars are never of two steps; twins always match."""
  tasks = make_tasks({0: 3, 1: 3}, {0: 2, 2: 3})
  steps = make("ib_drr")
  steps.keep(tasks[0])
  state = steps.folder
  before = state.with_name("before")
  shutil.copytree(state, before)
  finished = make("ib_drr", step=0)
  finished.keep(tasks[1])
  want = files_in(state / "memory") | files_in(state / "codec")
  places = [(os, "replace"), (os, "fsync"), (pathlib.Path, "unlink")]
  real = [getattr(*place) for place in places]
  for last in range(100):
    shutil.rmtree(state)
    shutil.copytree(before, state)
    steps, left, committed = make("ib_drr", step=0), [last], 0
    for place, operation in zip(places, real, strict=True):
      monkeypatch.setattr(*place, dying(operation, left))
    try:
      steps.memory.add(tasks[1], Onlooker())
      committed = 1
      steps.memory.settle()
      is_whole = True
    except Killed:
      is_whole = False
    for place, operation in zip(places, real, strict=True):
      monkeypatch.setattr(*place, operation)
    again = make("ib_drr", step=committed)
    if committed:
      again.memory.settle()
    elif last % 3 == 0:  # Each takes a while; `test_code_store` has them all.
      assert_twins_match(again, tasks[1], 2 * KEPT + 5)
      again.keep(tasks[1])
    else:
      again.memory.folder.check()
      continue
    files = files_in(state / "memory") | files_in(state / "codec")
    files = {n: data for n, data in files.items() if not n.startswith(".")}
    assert files == want
    if is_whole:
      break
  assert is_whole and last > 8
