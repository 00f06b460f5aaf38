"""Whole runs that remember codes: what they leave, and what kills them not."""

import json
import os
import signal

import numpy as np
import pytest
import tensorflow as tf
from processes import TINY_REPLAY as TINY
from processes import accuracies, start, wait_for

from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.manifest import MemoryFolder
from ibdrr_tf.state import read_state


def read_codes(workdir):
  folder = MemoryFolder(workdir / "memory", read_state(workdir).step)
  return CodeStore(folder, workdir / "codec").read()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("runs") / "w"
  process = start(*TINY, f"--workdir={workdir}")
  _, error = process.communicate(timeout=600)
  assert process.returncode == 0, error
  return workdir


def test_a_run_leaves_everything_it_promises(uninterrupted):
  names = {path.name for path in uninterrupted.iterdir()}
  assert {
    ".lock",
    "classifier",
    "codec",
    "config.json",
    "memory",
    "phase_accuracy.png",
    "predictions.npz",
    "reconstructions.png",
    "report.html",
    "report.md",
    "results.json",
    "state.json",
    "tensorboard",
  } == names
  results = json.loads((uninterrupted / "results.json").read_text())
  assert results["method"] == "ib_drr"
  ledger = results["phases"][-1]["memory"]
  memory, codec = uninterrupted / "memory", uninterrupted / "codec"
  assert ledger["payload"] + ledger["index"] + ledger["raw_exemplars"] == sum(
    path.stat().st_size for path in memory.iterdir()
  )
  for name, file in (
    ("codec_vqvae", "vqvae.ibvq"),
    ("codec_bitswap", "bitswap.ibbs"),
  ):
    assert ledger[name] == (codec / file).stat().st_size
  assert ledger["images"] == 80
  # 16 + 64 codes an image, at 32 pixels.
  assert ledger["bits_per_code"] == 8 * ledger["payload"] / (80 * 80)
  assert 0 < ledger["bits_per_code"] < 5  # Four bits without a model.


def test_the_exported_codec_reads_what_the_library_wrote(uninterrupted):
  codec = tf.saved_model.load(str(uninterrupted / "codec"))
  images = np.random.default_rng(0).integers(0, 256, (3, 20, 32, 3))
  images = images.astype(np.uint8)
  back = codec.decompress(codec.compress(images))
  top, bottom = codec.encode(images)
  np.testing.assert_array_equal(back, codec.decode(top, bottom)[:, :20])


def test_tensorboard_shows_bits_bytes_and_losses(uninterrupted):
  tags = set()
  for file in (uninterrupted / "tensorboard").rglob("events*"):
    for event in tf.compat.v1.train.summary_iterator(str(file)):
      tags |= {value.tag for value in event.summary.value}
  assert {
    "epoch_psnr",
    "epoch_bits_per_code",
    "epoch_ib_loss",
    "epoch_accuracy",
    "accuracy/all classes seen",
    "memory/bits_per_code",
    "memory/total",
  } <= tags


def test_killed_in_every_stage_nothing_is_lost(uninterrupted, tmp_path):
  """One run, killed in each stage, then brought to its end."""
  workdir = tmp_path / "w"
  for number, when in enumerate(
    (
      "checkpoints/vqvae/ckpt-1.index",
      "checkpoints/step-000/classifier/ckpt-1.index",
      "checkpoints/step-000/bitswap/ckpt-1.index",
      "codec/bitswap.next.ibbs",
      "checkpoints/step-001/classifier/ckpt-1.index",
    )
  ):
    resume = ["--resume"] if number else []
    process = start(*TINY, f"--workdir={workdir}", *resume)
    wait_for((workdir / when).exists, process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    state = read_state(workdir)
    if state is not None:
      labels = read_codes(workdir).labels
      assert np.bincount(labels).tolist() == [20] * (2 + state.step * 2)
  process = start(*TINY, f"--workdir={workdir}", "--resume")
  _, error = process.communicate(timeout=600)
  assert process.returncode == 0, error
  assert accuracies(workdir) == accuracies(uninterrupted)
  remembered, want = map(read_codes, (workdir, uninterrupted))
  np.testing.assert_array_equal(remembered.bottom, want.bottom)
  np.testing.assert_array_equal(remembered.labels, want.labels)
