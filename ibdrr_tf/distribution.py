"""Where models live: one device, or several that act as one.

Several devices of one process, or several processes (*workers*) that each have
some: a batch is divided among all of them, and gradients are summed. Every
worker runs the same program on its part of each batch, so whatever needs all of
them, such as a step of training, is reached by all of them. Only the *chief*,
the first, writes files.
"""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf.choices import check_devices
from ibdrr_tf.errors import UserError

__all__ = [
  "ALONE",
  "Team",
  "learning_rate_factor",
  "make_strategy",
]


def make_strategy(name: str, cpu_devices: int = 0) -> tf.distribute.Strategy:
  """Makes the strategy under whose scope models are built.

  Args:
    name: "none" is one device; "mirrored" is all GPUs, or the logical CPU
      devices; "multi_worker" is all devices of all processes that the
      environment variable TF_CONFIG names; "auto" is multi_worker where
      TF_CONFIG names several, else mirrored where there is more than one device
      to use.
    cpu_devices: divides the CPU into this many logical devices, to try
      `mirrored` where there is no GPU; 0 leaves it whole.
  """
  check_devices(name, cpu_devices)
  if cpu_devices:
    _divide_cpu(cpu_devices)
  cluster = _read_cluster(os.environ.get("TF_CONFIG", ""))
  if name == "multi_worker" and not cluster:
    raise UserError(
      "--distribute=multi_worker needs the environment variable TF_CONFIG, "
      "which names all workers: start them with launch/multi_worker.sh, or "
      "choose another --distribute."
    )
  if name == "multi_worker" or (name == "auto" and len(cluster) > 1):
    return _join_workers()
  gpus = tf.config.list_logical_devices("GPU")
  devices = gpus or tf.config.list_logical_devices("CPU")
  if name == "mirrored" or (name == "auto" and len(devices) > 1):
    return tf.distribute.MirroredStrategy([device.name for device in devices])
  return tf.distribute.get_strategy()


def learning_rate_factor(
  config: ml_collections.ConfigDict, strategy: tf.distribute.Strategy
) -> float:
  """By what the learning rates of all stages are multiplied.

  Batch sizes are those of the config, over all replicas, so a step does not
  depend on how many there are. Who gives each replica a whole batch of work, by
  a larger batch size, may also want proportional rates (Goyal et al., 2017).

  Args:
    config: `scale_learning_rate` says whether.
    strategy: has so many replicas.
  """
  replicas = strategy.num_replicas_in_sync
  return float(replicas) if config.scale_learning_rate else 1.0


class Team:
  """The workers that train together; a process alone is a team of one.

  Args:
    strategy: what `make_strategy` has given; None is one process alone.

  Attributes:
    count: number of workers.
    number: of this one; 0 is the chief.
  """

  def __init__(self, strategy: tf.distribute.Strategy | None):
    self._strategy = strategy
    resolver = strategy.cluster_resolver if strategy else None
    tasks = _tasks(resolver.cluster_spec().as_dict()) if resolver else []
    self.count = max(len(tasks), 1)
    self.number = 0
    if len(tasks) > 1:
      self.number = tasks.index((resolver.task_type, resolver.task_id))

  @property
  def strategy(self) -> tf.distribute.Strategy:
    """Models that all workers train are made within its scope."""
    return self._strategy or tf.distribute.get_strategy()

  @property
  def is_chief(self) -> bool:
    """Whether this worker writes files, and speaks."""
    return self.number == 0

  def share(self, count: int) -> slice:
    """This worker's part of so many pieces of work; neighbours, in order."""
    first, last = (count * (self.number + n) // self.count for n in (0, 1))
    return slice(first, last)

  def gather(self, values: np.ndarray) -> np.ndarray:
    """Joins what all workers have, in their order; all must call it.

    Args:
      values: an array of integers, [n, ...]; n may differ between workers.

    Returns:
      [sum of n, ...], of the same type, the same on all workers.
    """
    if self.count == 1:
      return values
    counts = self._stack(np.array(len(values)))
    longest = counts.max()
    if not longest:
      return values
    if not values[:1].size and 0 in values.shape[1:]:  # A level without codes.
      return np.zeros([counts.sum(), *values.shape[1:]], values.dtype)
    filled = np.zeros([longest, *values.shape[1:]], values.dtype)
    filled[: len(values)] = values
    parts = zip(self._stack(filled), counts, strict=True)
    return np.concatenate([part[:count] for part, count in parts])

  def _stack(self, values: np.ndarray) -> np.ndarray:
    """Arrays of all workers, of the same shape and not empty: [workers, ...].

    TensorFlow's own gathering of arrays of different lengths crashes where all
    of them are empty.
    """
    # Collective ops know no smaller integers.
    wide = tf.constant(values[np.newaxis], tf.int32)
    of_replicas = self._strategy.experimental_distribute_values_from_function(
      lambda context: wide
    )
    stacked = self._strategy.gather(of_replicas, axis=0).numpy()
    devices = self._strategy.num_replicas_in_sync // self.count
    return stacked[::devices].astype(values.dtype)

  def gather_strings(self, strings: list[bytes]) -> list[bytes]:
    """Joins the strings that all workers have, in their order."""
    if self.count == 1:
      return strings
    lengths = self.gather(np.array([len(s) for s in strings], np.int32))
    joined = self.gather(np.frombuffer(b"".join(strings), np.uint8)).tobytes()
    stops = np.cumsum(lengths)
    starts = stops - lengths
    return [joined[a:b] for a, b in zip(starts, stops, strict=True)]

  def ask_chief(self, question: Callable[[], str]) -> str:
    """What the chief answers, on all workers; the others are not asked.

    A file that the chief is about to write is there for some workers and not
    yet for others: who acts on its presence asks the chief.
    """
    answer = [question().encode()] if self.is_chief else []
    return self.gather_strings(answer)[0].decode()

  def is_there(self, path: pathlib.Path) -> bool:
    """Whether the chief finds a file, on all workers."""
    return bool(self.ask_chief(lambda: "yes" if path.is_file() else ""))

  def on_chief(self, action: Callable[[], Any]) -> None:
    """Lets the chief do something, while the others wait until it is done.

    Args:
      action: writes files; must not need the others, as reading the variables
        of a model does.
    """
    if self.is_chief:
      action()
    self.wait()

  def say(self, text: str) -> None:
    """Prints a line; the chief speaks for all."""
    if self.is_chief:
      print(text, flush=True)

  def wait(self) -> None:
    """Returns once all workers have come this far."""
    self.gather(np.zeros([1], np.int32))


ALONE = Team(None)


def _join_workers() -> tf.distribute.Strategy:
  try:
    # Without a timeout of its own for collective operations, of which each
    # would then hold a thread for as long. A worker that dies is noticed by its
    # closed connections, a machine that vanishes by TensorFlow's checks of all
    # workers every half minute.
    return tf.distribute.MultiWorkerMirroredStrategy()
  except tf.errors.UnknownError as error:
    raise UserError(
      "this worker cannot listen at its address in TF_CONFIG, which may be in "
      "use by another process: choose another port (IBDRR_PORT for "
      "launch/multi_worker.sh)."
    ) from error


def _read_cluster(text: str) -> list[tuple[str, int]]:
  """The tasks that TF_CONFIG names; none if it is empty."""
  if not text:
    return []
  try:
    config = json.loads(text)
    tasks = _tasks(config["cluster"])
    task = (config["task"]["type"], int(config["task"]["index"]))
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise UserError(
      'the environment variable TF_CONFIG is not of the form {"cluster": '
      '{"worker": ["host:port", …]}, "task": {"type": "worker", "index": 0}}: '
      "mend it, or start workers with launch/multi_worker.sh."
    ) from error
  if task not in tasks:
    raise UserError(
      f"the task {task[0]} {task[1]} of the environment variable TF_CONFIG is "
      f"none of its cluster of {len(tasks)} workers: mend its task's index."
    )
  return tasks


def _tasks(cluster: dict[str, list[str]]) -> list[tuple[str, int]]:
  """All workers, the chief first."""
  return [
    (kind, number)
    for kind in ("chief", "worker")
    for number in range(len(cluster.get(kind, [])))
  ]


def _divide_cpu(count: int) -> None:
  cpu = tf.config.list_physical_devices("CPU")[0]
  part = tf.config.LogicalDeviceConfiguration()
  try:
    tf.config.set_logical_device_configuration(cpu, [part] * count)
  except RuntimeError as error:
    raise UserError(
      f"--cpu_devices={count} comes too late: TensorFlow has already been "
      f"started in this process with another number of devices."
    ) from error
