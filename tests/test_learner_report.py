"""What a learner tells people: reports, and warnings that are due."""

import dataclasses

import pytest

from ibdrr_tf import learner_report
from ibdrr_tf.state import State


def record(step, **fields):
  ledger = {
    "payload": 1000,
    "index": 10,
    "raw_exemplars": 0,
    "codec_vqvae": 500,
    "codec_bitswap": 200,
    "other_models": 0,
    "images": 10,
    "total": 1710,
    "bits_per_code": 7.0,
  }
  return {
    "step": step,
    "kind": "learn",
    "new_classes": ["cat"],
    "images": 9,
    "held_out": 1,
    "dropped": 0,
    "psnr": 28.0,
    "bits_per_code": 7.0,
    "accuracy": {"new": 50.0, "old": 25.0, "all": 40.0},
    "ledger": ledger,
    **fields,
  }


@pytest.fixture
def state():
  return State(
    1,
    ("cat", "dog"),
    (16, 16, 3),
    {"method": "drr"},
    {"classes": 2, "old_classes": 1},
    (record(0), record(1, new_classes=["dog"])),
  )


def with_last(state, **fields):
  steps = (*state.steps[:-1], {**state.steps[-1], **fields})
  return dataclasses.replace(state, steps=steps)


def test_nothing_is_warned_of_without_reason(state):
  assert learner_report.warnings(state) == []


def test_a_codec_that_suits_badly(state):
  coarser = with_last(state, psnr=24.5, detail=30)
  assert learner_report.warnings(coarser) == []
  (warning,) = learner_report.warnings(with_last(state, psnr=24.5))
  assert "24.5 dB" in warning and "28.0" in warning
  # A few images pay for the start of their chain.
  few = with_last(state, bits_per_code=7.8, images=99)
  assert learner_report.warnings(few) == []
  many = with_last(state, bits_per_code=7.8, images=100)
  (warning,) = learner_report.warnings(many)
  assert "7.80 bits a code" in warning and "7.00" in warning
  assert not learner_report.warnings(
    with_last(state, psnr=25.5, bits_per_code=7.6)
  )


def test_memory_that_costs_more_than_the_pixels(state):
  pixels = 10 * 16 * 16 * 3
  ledger = {**state.steps[-1]["ledger"], "total": pixels + 1}
  (warning,) = learner_report.warnings(with_last(state, ledger=ledger))
  assert f"{pixels + 1:,} bytes" in warning and f"{pixels:,}" in warning
  ledger["total"] = pixels
  assert not learner_report.warnings(with_last(state, ledger=ledger))


def test_a_step_is_told_with_bytes_by_kind(state, tmp_path):
  text = learner_report.step(state, state.steps[-1], tmp_path)
  assert "step 1: 9 images learned, 1 new class (dog)" in text
  assert "1,710 (images 1,000, index 10, VQ-VAE 500, Bit-Swap model 200)" in (
    text
  )
  assert "the pixels of these images take 7,680" in text
  assert "40.0 %; classes of this step 50.0 %; other classes 25.0 %" in text
  dropped = with_last(state, dropped=7)
  text = learner_report.step(dropped, dropped.steps[-1], tmp_path)
  assert "7 images given up to hold the byte budget" in text
  alone = {"new": 50.0, "old": None, "all": 50.0}
  same = with_last(state, accuracy=alone)  # All classes came with this step.
  text = learner_report.step(same, same.steps[-1], tmp_path)
  assert "other classes" not in text
  ledger = {**state.steps[-1]["ledger"], "images": 0}
  blind = with_last(state, accuracy=alone, ledger=ledger)
  text = learner_report.step(blind, blind.steps[-1], tmp_path)
  assert "other classes are not tested" in text


def test_long_lists_of_classes_are_cut(state, tmp_path):
  many = dataclasses.replace(state, classes=tuple(f"c{n}" for n in range(30)))
  assert "c11 and 18 more" in learner_report.status(many, tmp_path)


@pytest.mark.parametrize("name", ["quality", "detail"])
def test_a_step_says_that_images_became_coarser(state, tmp_path, name):
  last = record(2, **{name: 45})
  steps = (record(0, **{name: 60}), record(1), last)
  known = dataclasses.replace(state, step=2, steps=steps)
  told = learner_report.step(known, last, tmp_path)
  assert f"coarser now: {name} 45 of 100 instead of 60" in told
  alike = record(2, **{name: 60})
  known = dataclasses.replace(known, steps=(*steps[:2], alike))
  assert "coarser" not in learner_report.step(known, alike, tmp_path)
