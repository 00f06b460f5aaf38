"""How reconstructions of old classes change while new classes are learned.

AQM and Scalable Recollections keep codes of networks that go on learning, so
the same codes decode to other images after every phase. The codec of this
package is frozen after its training: its codes decode to the same images for
ever. Each memory gets the same phases, and after each phase the images of every
earlier one are decoded and compared with the originals.
"""

import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf.data.examples import Examples, select
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.source import Source
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods import METHODS
from ibdrr_tf.replay.image_memory import by_class, read_all
from ibdrr_tf.replay.memory import Setting
from ibdrr_tf.replay.replay_memory import ReplayMemory

__all__ = ["RIVALS", "measure", "table"]

RIVALS = ("scalable_recollections", "aqm")

# Adds the images of a phase to a memory, and gives all images that it decodes,
# uint8 [n, h, w, 3], the originals in the same order, and its bytes by name.
_Phase = Callable[[Task], tuple[np.ndarray, np.ndarray, dict[str, int]]]


def measure(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  codec: str,
) -> dict[str, list[dict[str, Any]]]:
  """Takes each memory through all phases.

  Args:
    config: sections of the rivals, and the seed.
    source: the data.
    scenario: its phases.
    codec: name or folder of ours.

  Returns:
    For each memory a record of each phase: `psnr`, of the images of each phase
    so far, as decoded now; `mse`, the same in squared grey levels; `bytes`;
    `images`; and, for `aqm`, `raw`, the share that is kept without loss.
  """
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    shape = tuple(source.train.image_shape)
    memories = {
      name: _rival(name, config, shape, folder / name) for name in RIVALS
    }
    memories[f"ours ({pathlib.Path(codec).name})"] = _ours(
      codec, folder / "ours"
    )
    return {
      name: _take_through(phase, source.train, scenario)
      for name, phase in memories.items()
    }


def table(
  measured: dict[str, list[dict[str, Any]]],
) -> dict[str, dict[str, float]]:
  """PSNR of the first phase's classes after each phase, by memory."""
  return {
    name: {
      **{f"phase {k}": row["psnr"][0] for k, row in enumerate(rows)},
      "bytes": rows[-1]["bytes"],
    }
    for name, rows in measured.items()
  }


def _take_through(
  phase_of: _Phase, train: Examples, scenario: Scenario
) -> list[dict[str, Any]]:
  """Records of all phases of one memory."""
  records, stops = [], []
  for number, phase in enumerate(scenario.phases):
    labels = scenario.new_labels(phase)
    new = select(train, scenario, labels)
    task = by_class(Task(number, new, None, labels.start, labels.stop))
    decoded, originals, extra = phase_of(task)
    stops.append(len(originals))
    errors = np.square(decoded.astype(np.float32) - originals)
    starts = [0, *stops[:-1]]
    mse = [
      float(errors[a:b].mean()) for a, b in zip(starts, stops, strict=True)
    ]
    psnr = [10 * np.log10(255**2 / max(error, 1e-6)) for error in mse]
    records.append({"psnr": psnr, "mse": mse, "images": stops[-1], **extra})
  return records


def _rival(
  name: str,
  config: ml_collections.ConfigDict,
  shape: tuple[int, int, int],
  folder: pathlib.Path,
) -> _Phase:
  config = config.copy_and_resolve_references()
  config.method = name
  config.memory.total_bytes = 0  # All images stay.
  memory = METHODS[name].memory(Setting(config, folder / "memory", shape))
  originals = [np.zeros([0, *shape], np.uint8)]

  def phase(task: Task) -> tuple:
    # Neither memory looks at a network; images are kept in a random order.
    chosen = memory.exemplars.choose(task, None, len(task.new))
    originals.append(task.new.read(tf.constant(chosen)).numpy())
    memory.add(task, None)
    memory.settle()
    stored = memory.stored_bytes()
    stored.pop("images")
    extra = {"bytes": sum(stored.values())}
    if name == "aqm":
      extra["raw"] = float(np.mean(memory.levels() == 0))
    return memory.replayed()[0], np.concatenate(originals), extra

  return phase


def _ours(codec: str, folder: pathlib.Path) -> _Phase:
  memory, originals = ReplayMemory(folder, codec), []

  def phase(task: Task) -> tuple:
    images = read_all(task.new)
    originals.append(images)
    memory.add(images, task.new.labels)
    extra = {"bytes": memory.ledger().total}
    return memory.images()[0], np.concatenate(originals), extra

  return phase
