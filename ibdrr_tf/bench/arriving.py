"""Forms of `bench accuracy --steps=N`: images that arrive over time.

Who compresses all images at once knows how many bytes each may have. A learner
does not: its first images take what room there is, and get coarser as others
come. Codes get coarser without the image, and end as if they had been that
coarse from the start. Pictures are decoded and encoded again, and each time
lose more.

Each form is the memory of a method of this package, under the byte budget that
a learner has, and it is read back after the last step.
"""

import pathlib
import tempfile

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training
from ibdrr_tf.bench.accuracy import Form, Kept
from ibdrr_tf.codec import pretrained
from ibdrr_tf.config import learner_config
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import method_named
from ibdrr_tf.replay.memory import Memory, Setting

__all__ = ["arriving_form", "arriving_rivals"]

_MODELS = ("codec_vqvae", "codec_bitswap")


def arriving_rivals(steps: int) -> dict[str, Form]:
  """What a user has without a codec of this package, in so many steps."""
  sheets = {"avif sheets": "avif", "webp sheets": "webp"}
  rows = {
    name: arriving_form("sheet_replay", steps, sheet=kind)
    for name, kind in sheets.items()
  }
  return {**rows, "webp files": arriving_form("webp_replay", steps)}


def arriving_form(
  method: str, steps: int, codec: str = "", **memory: str
) -> Form:
  """The memory of a method, filled class by class in a number of steps.

  Args:
    method: its name; its memory keeps all images.
    steps: the classes are dealt to so many steps, in order.
    codec: name or folder, for methods that keep codes.
    **memory: fields of `config.memory`.
  """

  def form(images, labels, room, share) -> Kept | None:
    config = learner_config()
    config.method = method
    config.memory.update(memory)
    models = 0
    if codec:
      config.codec = codec
      models = _model_bytes(codec)
    # The memory pays for all of its models, the row only for a share of them.
    config.memory.total_bytes = int(room - models / share + models)
    with tempfile.TemporaryDirectory() as folder:
      try:
        kept = _fill(config, pathlib.Path(folder), images, labels, steps)
      except UserError:  # The budget holds no image of each class.
        return None
      stored = kept.stored_bytes()
      count = len(np.unique(labels))
      feed = kept.examples(Task(steps, _none(images), None, count, count))
      decoded = feed.read_all()
    if len(decoded) < len(images):
      return None  # Not all images fit: another comparison.
    models = sum(stored.get(name, 0) for name in _MODELS)
    names = ("payload", "index", "raw_exemplars")
    payload = sum(stored.get(name, 0) for name in names)
    how = f"quality {kept.quality}" if not codec else f"detail {kept.detail}"
    return Kept(f"{how} after {steps} steps", decoded, payload, models)

  return form


def _fill(
  config: ml_collections.ConfigDict,
  folder: pathlib.Path,
  images: np.ndarray,
  labels: np.ndarray,
  steps: int,
) -> Memory:
  """Adds the images to an empty memory, a group of classes at a time."""
  method = method_named(config.method)
  classes = len(np.unique(labels))
  edges = [classes * step // steps for step in range(steps + 1)]
  memory = None
  for step in range(steps):
    old, new = edges[step], edges[step + 1]
    chosen = (labels >= old) & (labels < new)
    examples = in_memory(images[chosen], labels[chosen])
    if memory is None:
      codec = None
      if method.uses_codec:
        codec = codec_training.prepare_codec(
          config, examples, folder, tf.distribute.get_strategy()
        )
      setting = Setting(config, folder / "memory", images.shape[1:], codec)
      memory = method.memory(setting, -1)
    memory.add(Task(step, examples, None, old, new), None)
    memory.settle()
  return memory


def _none(images: np.ndarray) -> Examples:
  return in_memory(images[:0], np.zeros(0))


def _model_bytes(codec: str) -> int:
  """Both stages of a codec, as the package or a folder has them."""
  folder = pretrained.folder_of(codec)
  names = (pretrained.VQVAE_FILE, pretrained.BITSWAP_FILE)
  return sum((folder / name).stat().st_size for name in names)
