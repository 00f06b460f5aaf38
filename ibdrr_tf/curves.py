"""Curves for TensorBoard: one run for each kind of training, not one a step.

    tensorboard/classifier   epoch_loss, epoch_accuracy, epoch_learning_rate
    tensorboard/bitswap      epoch_bits_per_code, …

The trainings of later steps go on where those of earlier steps ended, so that a
benchmark of ten phases has one curve of the classifier and not ten runs.
"""

import pathlib

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.util import event_pb2

__all__ = ["Curves"]

_SUFFIX = ".step-"


class Curves(tf.keras.callbacks.Callback):
  """Writes all metrics, and the learning rate, after each epoch.

  Args:
    folder: of the run that TensorBoard shows.
    step: that trains; its files bear its number. Files of the same step are
      those of a training that was interrupted and now goes on.
  """

  def __init__(self, folder: pathlib.Path, step: int):
    super().__init__()
    self._folder = folder
    self._step = step

  def on_train_begin(self, logs: dict | None = None) -> None:
    """Looks where the curves of earlier steps end."""
    self._first = 0
    for path in self._folder.glob(f"*{_SUFFIX}*"):
      number = path.suffix.removeprefix(_SUFFIX)
      if path.is_file() and number.isdecimal() and int(number) < self._step:
        self._first = max(self._first, _last_epoch(path) + 1)
    self._writer = tf.summary.create_file_writer(
      str(self._folder), filename_suffix=f"{_SUFFIX}{self._step:03d}"
    )

  def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
    """Writes a point of each curve."""
    with self._writer.as_default(step=self._first + epoch):
      for name, value in (logs or {}).items():
        tf.summary.scalar(f"epoch_{name}", value)
      # Of a schedule, the rate of the last update.
      rate = self.model.optimizer.learning_rate
      tf.summary.scalar("epoch_learning_rate", rate)
    self._writer.flush()

  def on_train_end(self, logs: dict | None = None) -> None:
    """Closes the file."""
    self._writer.close()


def _last_epoch(path: pathlib.Path) -> int:
  """The last epoch in an event file; -1 if there is none.

  A process that was killed may have left half an event at its end.
  """
  last = -1
  try:
    for data in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      event = event_pb2.Event.FromString(data)
      if event.HasField("summary"):
        last = max(last, event.step)
  except (tf.errors.OpError, DecodeError):
    pass
  return last
