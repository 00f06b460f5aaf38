"""Keras `fit` that can be killed after any epoch and goes on as if not."""

import contextlib
import dataclasses
import math
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf
import tqdm
from tensorflow.python.framework import ops

from ibdrr_tf.curves import Curves
from ibdrr_tf.data.stream import Share
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError

__all__ = ["CosineRate", "Fit", "adam", "fit", "restore_finished"]


@dataclasses.dataclass(frozen=True)
class Fit:
  """What to fit, for how long, and where to leave traces.

  Attributes:
    epochs: number of epochs.
    steps_per_epoch: batches in each of them.
    batches: gives this process' share of the batches of a range of epochs;
      must be a pure function of the epoch, or a resumed run would differ.
    checkpoints: folder for the state after each epoch; holds one. The chief of
      a team writes it, all read it.
    tensorboard: folder for losses, metrics and the learning rate; that of
      other steps' trainings of the same kind as well.
    title: what the progress bar says.
    step: number of the step that trains.
  """

  epochs: int
  steps_per_epoch: int
  batches: Callable[[range, Share], tf.data.Dataset]
  checkpoints: pathlib.Path
  tensorboard: pathlib.Path
  title: str
  step: int = 0


def fit(
  model: tf.keras.Model,
  job: Fit,
  callbacks: Sequence[tf.keras.callbacks.Callback] = (),
) -> float:
  """Trains a compiled model, from the last finished epoch if there is one.

  Args:
    model: built and compiled; its weights and its optimiser's are replaced by
      those of a checkpoint where there is one.
    job: what to fit.
    callbacks: more Keras callbacks.

  Returns:
    Seconds spent in training, earlier interrupted runs included.
  """
  strategy = model.distribute_strategy
  team = Team(strategy)
  state = _State(model, job, team)
  start = state.restore()
  if start < job.epochs:
    with _forgetting_gradients():
      model.fit(
        strategy.distribute_datasets_from_function(
          lambda context: job.batches(
            range(start, job.epochs), Share.of(context)
          )
        ),
        initial_epoch=start,
        epochs=job.epochs,
        steps_per_epoch=job.steps_per_epoch,
        verbose=0,
        callbacks=[
          # The guard comes before the checkpoint: a broken state is not kept.
          _StopOnNaN(job.title),
          *callbacks,
          state,
          *(_traces(job, start) if team.is_chief else []),
        ],
      )
  return state.seconds


@contextlib.contextmanager
def _forgetting_gradients() -> Iterator[None]:
  """Lets go of gradients that TensorFlow registers while it builds graphs.

  An all-reduce, which Keras' optimisers use, has a gradient of its own, which
  TensorFlow keeps by name for as long as the process lives, and with it the
  whole graph: some ten megabytes a training. A graph that has been built does
  not look for it any more.
  """
  known = getattr(ops.gradient_registry, "_registry", {})
  before = set(known)
  try:
    yield
  finally:
    for name in set(known) - before:
      known.pop(name, None)


def _traces(job: Fit, start: int) -> list[tf.keras.callbacks.Callback]:
  """TensorBoard and progress-bar callbacks."""
  return [
    Curves(job.tensorboard, job.step),
    _ProgressBar(job.title, start, job.epochs, job.steps_per_epoch),
  ]


def restore_finished(model: tf.keras.Model, job: Fit) -> float:
  """Gives a model the weights of a finished training; returns its seconds."""
  state = _State(model, job, Team(model.distribute_strategy))
  if state.restore() < job.epochs:
    raise UserError(
      f"the checkpoint of {job.title} in {job.checkpoints} is missing, though "
      f"the run is past it: restore it, or start again in another --workdir."
    )
  return state.seconds


class CosineRate(tf.keras.optimizers.schedules.CosineDecay):
  """A rate that rises, then falls along a cosine.

  Its numbers are variables: a graph that was built for one training can serve
  another, of other length.

  Args:
    final_share: of the highest rate, at the end.
  """

  def __init__(self, final_share: float):
    decay, warmup, highest = (
      tf.Variable(0.0, trainable=False) for _ in range(3)
    )
    super().__init__(
      0.0,
      decay,
      alpha=final_share,
      warmup_target=highest,
      warmup_steps=warmup,
    )

  def set(self, rate: float, *, steps: int, warmup: int) -> None:
    """Says what training to expect.

    Args:
      rate: the highest.
      steps: all steps of the training.
      warmup: steps of the rise, at most a tenth of all.
    """
    warmup = min(warmup, steps // 10)
    self.warmup_target.assign(rate)
    self.decay_steps.assign(steps - warmup)
    self.warmup_steps.assign(warmup)


def adam(
  rate: tf.keras.optimizers.schedules.LearningRateSchedule | float,
  clip_norm: float,
) -> tf.keras.optimizers.Adam:
  """Adam.

  Args:
    rate: of learning.
    clip_norm: of the whole gradient; 0 does not clip.
  """
  return tf.keras.optimizers.Adam(
    rate, global_clipnorm=clip_norm or None, jit_compile=False
  )


class _State(tf.keras.callbacks.Callback):
  """Model, optimiser, epoch and time, kept after every epoch."""

  def __init__(self, model: tf.keras.Model, job: Fit, team: Team):
    super().__init__()
    self._epochs = job.epochs
    self._folder = str(job.checkpoints)
    # Within the scope: each replica needs moments of its own. Shared ones would
    # be updated by all in turn, and weights would part.
    with model.distribute_strategy.scope():
      model.optimizer.build(model.trainable_variables)
    self._epoch = tf.Variable(0, dtype=tf.int64, trainable=False)
    self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)
    folder = self._folder
    if not team.is_chief:
      # Variables that replicas hold in common are read by all workers at once,
      # so all of them save; what the others write is thrown away.
      self._scratch = tempfile.TemporaryDirectory()
      folder = self._scratch.name
    checkpoint = tf.train.Checkpoint(
      model=model,
      optimizer=model.optimizer,
      epoch=self._epoch,
      seconds=self._seconds,
    )
    with self._readable():
      self._refuse_pipes()
      self._manager = tf.train.CheckpointManager(
        checkpoint, folder, max_to_keep=1
      )

  @property
  def seconds(self) -> float:
    return float(self._seconds.numpy())

  def restore(self) -> int:
    """Restores the last finished epoch; returns how many are finished."""
    with self._readable():
      latest = tf.train.latest_checkpoint(self._folder)
      if latest:
        status = self._manager.checkpoint.restore(latest)
        status.assert_existing_objects_matched()
      elif os.path.exists(os.path.join(self._folder, "checkpoint")):
        raise ValueError("it names no checkpoint that is there")
    return int(self._epoch.numpy())

  def _refuse_pipes(self) -> None:
    """Refuses what TensorFlow would wait for; folders may be left by a kill."""
    if not os.path.isdir(self._folder):
      return
    for entry in os.scandir(self._folder):
      if not (entry.is_file() or entry.is_dir()):
        raise ValueError(f"{entry.name} is not a file")

  @contextlib.contextmanager
  def _readable(self) -> Iterator[None]:
    """Turns errors of damaged files into a sentence."""
    try:
      yield
    except (
      *(AssertionError, IndexError, ValueError, OSError, RuntimeError),
      # A damaged index may declare a tensor of any size.
      *(MemoryError, tf.errors.OpError),
    ) as error:
      raise UserError(
        f"the checkpoint in {self._folder} cannot be read: restore it from a "
        f"copy, or remove it to train from the start."
      ) from error

  def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
    self._started = time.perf_counter()

  def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
    # Whoever has stopped early is finished: a resumed run must not go on.
    stopped = self.model.stop_training
    self._epoch.assign(self._epochs if stopped else epoch + 1)
    self._seconds.assign_add(time.perf_counter() - self._started)
    self._manager.save(checkpoint_number=epoch + 1)


class _StopOnNaN(tf.keras.callbacks.Callback):
  """Ends a run whose loss, or any metric, is lost before the state is kept.

  Not every model reports a loss by that name.
  """

  def __init__(self, title: str):
    super().__init__()
    self._title = title

  def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
    for name, value in (logs or {}).items():
      if not math.isfinite(value):
        raise UserError(
          f"{name} became {value} in epoch {epoch + 1} of {self._title}: lower "
          f"the learning rate and start again in another --workdir."
        )


class _ProgressBar(tf.keras.callbacks.Callback):
  """One bar for all epochs, with the time that is left; silent in log files."""

  def __init__(self, title: str, start: int, epochs: int, steps: int):
    super().__init__()
    self._epochs = epochs
    self._title = title
    self._bar_options = {"total": epochs * steps, "initial": start * steps}

  def on_train_begin(self, logs: dict | None = None) -> None:
    # disable=None: no bar where standard error is no terminal.
    self._bar = tqdm.tqdm(
      desc=self._title,
      leave=False,
      disable=None,
      dynamic_ncols=True,
      bar_format="{desc} {percentage:3.0f}%|{bar}| {remaining} left{postfix}",
      **self._bar_options,
    )

  def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
    self._bar.update()

  def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
    logs = logs or {}
    # There is room for two; TensorBoard shows them all.
    first = [name for name in ("loss", "accuracy") if name in logs]
    values = [f"{name} {logs[name]:.3g}" for name in (first or [*logs])[:2]]
    # tqdm puts a comma before it.
    self._bar.set_postfix_str(
      ", ".join([f"epoch {epoch + 1}/{self._epochs}", *values])
    )

  def on_train_end(self, logs: dict | None = None) -> None:
    self._bar.close()
