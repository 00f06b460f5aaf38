"""MRDC: LUCIR on compressed exemplars, of which more fit."""

import dataclasses
import functools

import numpy as np

from ibdrr_tf.data.examples import in_memory, take
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods.lucir import LUCIR
from ibdrr_tf.replay import image_formats
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory, Plan
from ibdrr_tf.replay.image_memory import read_all
from ibdrr_tf.replay.memory import Embeds

__all__ = ["MRDC", "finest_that_keeps", "log_volume", "plan"]

_QUALITIES = (10, 25, 50, 75, 90)
# Of the Gram matrix; the released code leaves out classes whose volume is 0, as
# it is with more images than features.
_JITTER = 1e-4
# New images of a class whose files are measured.
_SAMPLE = 32


def log_volume(features: np.ndarray) -> float:
  """The logarithm of the volume that unit features span.

  Args:
    features: float [n, d], of any norm.
  """
  lengths = np.linalg.norm(features, axis=1, keepdims=True)
  unit = features.astype(np.float64) / np.maximum(lengths, 1e-12)
  gram = unit @ unit.T + _JITTER * np.eye(len(unit))
  return 0.5 * float(np.linalg.slogdet(gram)[1])


def finest_that_keeps(
  volumes: dict[int, tuple[float, float]], epsilon: float
) -> int:
  """The lowest quality at which volumes stay alike; else the highest.

  Args:
    volumes: of each quality, the mean log-volume of as many compressed images
      as fit, and that of the same images as they were.
    epsilon: how far their ratio may be from 1.
  """
  for quality in sorted(volumes):
    compressed, original = volumes[quality]
    ratio = compressed / original if abs(original) > 1e-9 else 1.0
    if abs(ratio - 1.0) < epsilon:
      return quality
  return max(volumes)


def plan(memory: ExemplarMemory, task: Task, network: Embeds) -> Plan:
  """Quality and number of the new exemplars of a class, without training.

  As many images fit as have the bytes of `memory.exemplars_per_class` raw ones
  or, with a byte budget, those of an equal share for each class; then no number
  is given, because memory keeps as many as fit anyway.
  """
  config, kind = memory.config, memory.kind
  labels = np.unique(task.new.labels)
  some = np.concatenate(
    [np.flatnonzero(task.new.labels == k)[:_SAMPLE] for k in labels]
  )
  sample = read_all(take(task.new, some))
  room = config.memory.exemplars_per_class * _mean_size(sample, "lossless")
  if config.memory.total_bytes:
    room = memory.room / task.classes
  plans, volumes = {}, {}
  for quality in _QUALITIES:
    count = max(1, int(room / _mean_size(sample, kind, quality)))
    chosen = memory.exemplars.choose(task, network, count)
    images = read_all(take(task.new, chosen))
    classes = task.new.labels[chosen]
    lossy = image_formats.decode(
      image_formats.encode(images, kind, quality), kind, images.shape[1:]
    )
    limit = None if config.memory.total_bytes else count
    plans[quality] = Plan(limit, quality)
    volumes[quality] = tuple(
      _mean_volume(network, part, classes) for part in (lossy, images)
    )
  return plans[finest_that_keeps(volumes, config.mrdc.epsilon)]


def _mean_size(
  images: np.ndarray, kind: str, quality: int | None = None
) -> float:
  return np.mean([*map(len, image_formats.encode(images, kind, quality))])


def _mean_volume(
  network: Embeds, images: np.ndarray, labels: np.ndarray
) -> float:
  """Mean log-volume over classes; 0 without images."""
  if not len(labels):
    return 0.0
  features = network.features(in_memory(images, labels))
  volumes = [log_volume(features[labels == k]) for k in np.unique(labels)]
  return float(np.mean(volumes))


# Wang et al. (2022), memory replay with data compression, on LUCIR with its
# losses, schedule and herding. New images are learned as they are, and kept as
# JPEG files; each step chooses a quality for its own: the lowest of five at
# which the features of the compressed images span about the volume that those
# of the originals do. The authors compress images of some 500 pixels a side; at
# 32, a JPEG file is mostly its header of some 277 bytes.
MRDC = dataclasses.replace(
  LUCIR,
  memory=functools.partial(
    ExemplarMemory, selected="herding", kind="jpeg", plan=plan
  ),
)
