"""Codes that become coarser so that all images stay within a budget."""

import numpy as np
import pytest
from tiny_config import tiny_config
from tiny_step import (
  Steps,
  TinyCodecs,
  assert_ledger_matches,
  make_tasks,
  pixels,
)

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.codec import coarsen_codes, encode_examples
from ibdrr_tf.replay.detail import estimated_bytes, finest_detail


@pytest.fixture(scope="module")
def codecs():
  return TinyCodecs(top_depth=0, bottom_depth=3, blank=True)


@pytest.fixture
def make(tmp_path, codecs):
  def make_steps(folder="w", step=-1, name="drr", **memory):
    config = tiny_config(name, 2)
    config.memory.update(memory)
    config.bitswap.chain_images = 64  # As those of the codecs above.
    return Steps(config, tmp_path / folder, codecs, step)

  return make_steps


def learned(steps):
  """Codes of the remembered images that are learned from, in one order."""
  codes = steps.memory.read()
  return sorted(map(bytes, codes.bottom[~codes.held_out]))


def test_a_budget_makes_codes_coarser_before_images_go(make, codecs):
  # A model that has learned nothing pays for the first blank of each place.
  tasks = make_tasks({0: 40, 1: 40}, {2: 10}, {0: 10}, held_out=2)
  first = make()
  first.keep(tasks[0])
  budget = assert_ledger_matches(first).total
  budget += 1000 - first.memory.folder.manifest_bytes + 500
  steps, details = make(step=0, total_bytes=budget), [100]
  for task in tasks[1:]:
    feed = steps.memory.examples(task)
    steps.keep(task)
    assert assert_ledger_matches(steps).total <= budget
    assert steps.memory.dropped == 0
    details.append(steps.memory.detail)
    # What was trained on is what is kept.
    assert sorted(map(bytes, feed._codes.bottom)) == learned(steps)
  assert details == sorted(details, reverse=True)
  assert details[0] > details[1] > details[2]
  assert len(steps.memory.read()) == 100 + 8
  # Codes that became coarser in steps are those of the images, at once.
  images = np.concatenate([pixels(task.new) for task in tasks])
  _, bottom = codecs.vqvae.encode(images)
  threshold = codecs.vqvae.bottom_quantizer.threshold(details[-1])
  want = codecs.vqvae.coarsen(bottom, np.full(len(images), threshold, "f4"))
  assert sorted(map(bytes, want.numpy().astype(np.int16))) == learned(steps)
  # Another process finds the same detail.
  assert make(step=2, total_bytes=budget).memory.detail == details[-1]


def test_detail_is_what_was_asked_for(make):
  (task,) = make_tasks({0: 20})
  fine, coarse = make("fine"), make("coarse", detail=0)
  for steps in (fine, coarse):
    steps.keep(task)
  assert np.any(fine.memory.read().bottom[..., 1:])
  assert not np.any(coarse.memory.read().bottom[..., 1:])
  sizes = [s.memory.stored_bytes()["payload"] for s in (fine, coarse)]
  assert sizes[1] < 0.75 * sizes[0]
  assert coarse.memory.detail == 0
  # What is coarse stays so, whatever a later configuration asks for.
  assert make("coarse", step=0, detail=100).memory.detail == 0


def test_forgetting_a_class_keeps_the_detail(make):
  (task,) = make_tasks({0: 8, 1: 8})
  steps = make(detail=30)
  steps.keep(task)
  steps.forget(1, 0)
  assert make(step=1).memory.detail == 30
  assert len(steps.memory.read()) == 8


def test_the_finest_detail_that_fits_is_found(codecs):
  (task,) = make_tasks({0: 50})
  codes = encode_examples(codecs.vqvae, task.new)
  model = codecs._models[0]
  sizes = [
    estimated_bytes(model, coarsen_codes(codecs.vqvae, codes, detail))
    for detail in range(101)
  ]
  for room in (0, sizes[0], sizes[37], sizes[100], 10 * sizes[100]):
    found = finest_detail(
      codecs.vqvae, codes, lambda c, r=room: estimated_bytes(model, c) <= r
    )
    fitting = [d for d in range(101) if sizes[d] <= room]
    assert sizes[found] == sizes[max(fitting, default=0)]


def test_a_codec_without_blank_codes_cannot_be_coarser(tmp_path):
  config = tiny_config("drr", 2)
  config.memory.detail = 50
  steps = Steps(config, tmp_path / "w", TinyCodecs())
  (task,) = make_tasks({0: 4})
  with pytest.raises(UserError, match="no blank codes"):
    steps.memory.examples(task)
