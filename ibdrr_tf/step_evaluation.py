"""How well a step went, before it is committed."""

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_training import Network
from ibdrr_tf.codec.lossy.vqvae import psnr
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods import Method
from ibdrr_tf.replay.codec import ReplayCodec
from ibdrr_tf.replay.memory import Memory

__all__ = ["accuracy_on_held_out", "codec_quality"]

_SAMPLE = 200


def codec_quality(
  task: Task,
  codec: ReplayCodec | None,
  memory: Memory,
  before: dict[str, int],
) -> dict[str, float]:
  """How well the codec suits the new images: PSNR and bits a code, by detail.

  Nothing for a step without new images, or a method without a codec. Bits are
  what the step has added, divided by the codes that it has added; where the
  byte budget made memory smaller, they are those of the whole memory.

  Args:
    task: the step.
    codec: of the memory.
    memory: after the step.
    before: `memory.stored_bytes()` before the step.
  """
  if codec is None or not len(task.new):
    return {}
  places = np.linspace(0, len(task.new) - 1, min(_SAMPLE, len(task.new)))
  images = task.new.read(tf.constant(places.astype(np.int64)))
  quality = psnr(images, codec.reconstruct(images, memory.detail))
  stored = memory.stored_bytes()
  added = {
    name: stored[name] - before.get(name, 0) for name in ("payload", "codes")
  }
  if min(added.values()) <= 0:
    added = stored
  return {
    "detail": memory.detail,
    "psnr": round(float(tf.reduce_mean(quality)), 2),
    "bits_per_code": round(8 * added["payload"] / added["codes"], 3),
  }


def accuracy_on_held_out(
  method: Method, network: Network, memory: Memory, task: Task
) -> dict[str, float | None]:
  """Accuracy on images that were set aside, in percent, old and new apart.

  Images of classes that came with this step are raw. Those of other classes
  are what memory gives back of them.

  Returns:
    `new`, `old` and `all`; None where there are no such images.
  """
  fresh = [] if task.held_out is None else np.unique(task.held_out.labels)
  result: dict[str, float | None] = {"new": None, "old": None, "all": None}
  right = {}
  for name, examples in (("new", task.held_out), ("old", memory.held_out())):
    if examples is None or not len(examples):
      continue
    scores = method.predict(network, memory, examples)
    hits = scores.argmax(axis=1) == examples.labels
    if name == "old":
      hits = hits[~np.isin(examples.labels, fresh)]
    if len(hits):
      right[name] = hits
      result[name] = round(100.0 * float(hits.mean()), 2)
  if right:
    both = np.concatenate(list(right.values()))
    result["all"] = round(100.0 * float(both.mean()), 2)
  return result
