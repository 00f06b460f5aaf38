"""`fit` that resumes, on a model small enough to follow."""

import dataclasses
import gc
import io
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tqdm
from tensorflow.python.framework.func_graph import FuncGraph

from ibdrr_tf import training
from ibdrr_tf.errors import UserError
from ibdrr_tf.random_seed import set_random_seed

X = np.random.default_rng(0).normal(size=(3, 8, 4)).astype(np.float32)
Y = X.sum(axis=2)


def make_model(rate=0.1):
  set_random_seed(0)
  model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=[4])])
  model.compile(tf.keras.optimizers.SGD(rate, momentum=0.9), "mse")
  return model


def make_job(path: pathlib.Path, epochs: int):
  def batches(chosen, share):
    order = np.concatenate([np.roll(np.arange(3), e) for e in chosen])
    return tf.data.Dataset.from_tensor_slices((X[order], Y[order]))

  return training.Fit(
    epochs=epochs,
    steps_per_epoch=3,
    batches=batches,
    checkpoints=path / "checkpoints",
    tensorboard=path / "tensorboard",
    title="a test",
  )


class Kill(tf.keras.callbacks.Callback):
  """Stops in the middle of an epoch, as a signal would."""

  def __init__(self, epoch):
    super().__init__()
    self.epoch, self.now = epoch, -1

  def on_epoch_begin(self, epoch, logs=None):
    self.now = epoch

  def on_train_batch_end(self, batch, logs=None):
    if self.now == self.epoch and batch == 1:
      raise KeyboardInterrupt


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_an_interrupted_fit_ends_with_the_same_weights(tmp_path, epoch):
  whole = make_model()
  training.fit(whole, make_job(tmp_path / "whole", 4))
  broken = make_model()
  job = make_job(tmp_path / "broken", 4)
  with pytest.raises(KeyboardInterrupt):
    training.fit(broken, job, [Kill(epoch)])
  resumed = make_model()
  training.fit(resumed, job)
  for want, got in zip(whole.get_weights(), resumed.get_weights(), strict=True):
    np.testing.assert_array_equal(want, got)


def test_a_finished_fit_is_only_restored(tmp_path):
  model = make_model()
  job = make_job(tmp_path, 2)
  seconds = training.fit(model, job)
  again = make_model()
  # The time is the one of the training, not of restoring it.
  assert training.fit(again, job, [Kill(0)]) == seconds > 0
  np.testing.assert_array_equal(model.get_weights()[0], again.get_weights()[0])


def curves(folder):
  """What TensorBoard shows: values by tag and x."""
  found = {}
  for file in sorted(folder.iterdir()):
    for event in tf.compat.v1.train.summary_iterator(str(file)):
      for value in event.summary.value:
        points = found.setdefault(value.tag, {})
        points[event.step] = float(tf.make_ndarray(value.tensor))
  return found


def test_one_checkpoint_is_kept(tmp_path):
  training.fit(make_model(), make_job(tmp_path, 3))
  kept = sorted(p.name for p in (tmp_path / "checkpoints").glob("*.index"))
  assert kept == ["ckpt-3.index"]


def test_losses_and_the_rate_are_logged(tmp_path):
  losses = []

  class Watch(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
      losses.append(logs["loss"])

  # Three updates an epoch, of falling rate; the last one's is shown.
  falling = tf.keras.optimizers.schedules.PolynomialDecay(0.1, 9, 0.01)
  for number, rate in enumerate((falling, 0.05)):
    job = make_job(tmp_path / str(number), 3)
    losses.clear()
    training.fit(make_model(rate), job, [Watch()])
    shown = curves(job.tensorboard)
    assert list(shown["epoch_loss"]) == [0, 1, 2]
    np.testing.assert_allclose(
      list(shown["epoch_loss"].values()), losses, rtol=1e-6
    )
    want = [0.08, 0.05, 0.02] if rate is falling else [0.05] * 3
    np.testing.assert_allclose(
      list(shown["epoch_learning_rate"].values()), want, rtol=1e-5
    )


def test_curves_of_later_steps_follow_those_of_earlier_ones(tmp_path):
  def job(step, epochs):
    made = make_job(tmp_path, epochs)
    checkpoints = tmp_path / f"checkpoints-{step}"
    return dataclasses.replace(made, step=step, checkpoints=checkpoints)

  training.fit(make_model(), job(0, 3))
  # Step 1 is interrupted and goes on.
  with pytest.raises(KeyboardInterrupt):
    training.fit(make_model(), job(1, 2), [Kill(1)])
  training.fit(make_model(), job(1, 2))
  training.fit(make_model(), job(10, 1))
  (tmp_path / "tensorboard/events.out.tfevents.step-009").write_bytes(b"half")
  training.fit(make_model(), job(11, 1))
  assert list(curves_of_whole_files(tmp_path / "tensorboard")) == list(range(7))


def curves_of_whole_files(folder):
  (folder / "events.out.tfevents.step-009").unlink()
  return dict(sorted(curves(folder)["epoch_loss"].items()))


def test_the_progress_bar_fits_a_narrow_terminal(monkeypatch, tmp_path):
  class Terminal(io.StringIO):
    def isatty(self):
      return True

  terminal = Terminal()
  monkeypatch.setattr("sys.stderr", terminal)
  monkeypatch.setenv("COLUMNS", "80")
  monkeypatch.setenv("LINES", "24")
  monkeypatch.setattr(tqdm.tqdm, "monitor_interval", 0)
  job = make_job(tmp_path, 4)
  training.fit(
    make_model(), dataclasses.replace(job, title="step 10, 100 classes")
  )
  lines = [line for line in terminal.getvalue().split("\r") if line.strip()]
  assert max(map(len, lines)) <= 80
  assert any("epoch 4/4, loss " in line for line in lines)
  assert all(line.startswith("step 10, 100 classes ") for line in lines)


def test_a_lost_loss_ends_the_run_and_is_not_kept(tmp_path):
  model = make_model(rate=1e30)
  with pytest.raises(UserError, match="learning rate"):
    training.fit(model, make_job(tmp_path, 3))
  assert not list((tmp_path / "checkpoints").glob("*.index"))


def test_any_metric_that_is_lost_ends_the_run(tmp_path):
  """Bit-Swap, for one, reports bits and no loss."""

  class Reporting(tf.keras.Model):
    def train_step(self, data):
      del data
      return {"bits_per_code": tf.constant(np.nan)}

  inputs = tf.keras.Input([4])
  model = Reporting(inputs, tf.keras.layers.Dense(1)(inputs))
  model.compile(tf.keras.optimizers.SGD(0.1))
  with pytest.raises(UserError, match="bits_per_code became nan in epoch 1"):
    training.fit(model, make_job(tmp_path, 2))
  assert not list((tmp_path / "checkpoints").glob("*.index"))


def test_a_checkpoint_of_another_model_is_named(tmp_path):
  training.fit(make_model(), make_job(tmp_path, 1))
  other = tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=[4])])
  other.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse")
  with pytest.raises(UserError, match="checkpoints"):
    training.fit(other, make_job(tmp_path, 2))


@pytest.mark.parametrize("suffix", ["index", "data-00000-of-00001", ""])
def test_damaged_checkpoints_get_a_sentence(tmp_path, suffix):
  """Cut off, changed or replaced: never a traceback, never a silent start."""
  job = make_job(tmp_path, 2)
  training.fit(make_model(), make_job(tmp_path, 1))
  path = job.checkpoints / (f"ckpt-1.{suffix}" if suffix else "checkpoint")
  data = path.read_bytes()
  noise = np.random.default_rng(0).bytes(len(data))
  for damaged in (data[: len(data) // 2], data[:9], data[:1], b"", noise):
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"checkpoint in .* cannot be read"):
      training.fit(make_model(), job)
  path.unlink()
  os.mkfifo(path)
  with pytest.raises(UserError, match=r"checkpoint in .* cannot be read"):
    training.fit(make_model(), job)
  path.unlink()
  path.write_bytes(data)
  # A process that was killed while it saved has left this.
  (job.checkpoints / "ckpt-2_temp").mkdir()
  training.fit(make_model(), job)


@pytest.mark.parametrize("exponent", [33, 62])
def test_an_index_may_not_take_all_memory(tmp_path, exponent):
  """Its last 48 bytes, without a checksum, say how long its blocks are.

  TensorFlow believes them; where nobody has so much, it runs out of memory.
  """
  job = make_job(tmp_path, 2)
  training.fit(make_model(), make_job(tmp_path, 1))
  path = job.checkpoints / "ckpt-1.index"
  data, shift = path.read_bytes(), exponent % 7
  size = b"\x80" * (exponent // 7) + bytes([1 << shift])  # As a varint.
  path.write_bytes(
    data[:-48] + (2 * (b"\0" + size)).ljust(40, b"\0") + data[-8:]
  )
  with pytest.raises(UserError, match=r"checkpoint in .* cannot be read"):
    training.fit(make_model(), job)


def live_graphs():
  """Graphs of training that something still refers to."""
  gc.collect()
  return sum(
    isinstance(thing, FuncGraph) and "train_function" in thing.name
    for thing in gc.get_objects()
  )


def test_graphs_of_finished_trainings_are_let_go(tmp_path):
  """Or a process would grow with every phase."""
  before = live_graphs()
  for number in range(4):
    training.fit(make_model(), make_job(tmp_path / str(number), 1))
  assert live_graphs() <= before
