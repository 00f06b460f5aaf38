"""The lossless stage of a run: Bit-Swap, trained on codes and stored."""

import pathlib

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import files, training
from ibdrr_tf.codec import bit_swap_file, code_tree, static
from ibdrr_tf.codec.bit_swap_codec import codec_of
from ibdrr_tf.codec.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.code_codec import CodeCodec
from ibdrr_tf.codec.pretrained import BITSWAP_FILE, STATIC_FILE
from ibdrr_tf.codec.vqvae import HierarchicalVQVAE
from ibdrr_tf.data import stream
from ibdrr_tf.distribution import ALONE, Team, learning_rate_factor
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.memory import Codes

__all__ = [
  "BITSWAP_FILE",
  "STATIC_FILE",
  "load_code_codec",
  "store_bit_swap",
  "store_static",
  "train_bit_swap",
]

_BITSWAP_STREAM = 1 << 21
_BATCH = 250
# Every how many-th image is held out to see whether the loss still falls.
_HELD_OUT = 20


def train_bit_swap(
  config: ml_collections.ConfigDict,
  vqvae: HierarchicalVQVAE,
  codes: Codes,
  folder: pathlib.Path,
  strategy: tf.distribute.Strategy,
  *,
  phase: int = 0,
  start: BitSwapModel | None = None,
) -> BitSwapModel:
  """Trains a model on codes until the loss on held-out ones falls no more.

  Args:
    config: `config.bitswap` is the recipe.
    vqvae: its codebooks give the trees.
    codes: what to learn.
    folder: gets traces in `checkpoints/` and `tensorboard/`.
    strategy: the model is made within its scope.
    phase: of the run; each has its own traces and batches.
    start: a model to fine-tune, as it is, whatever the recipe's shape; None
      trains a new one. Phases after the base phase have `fine_tune_epochs`.

  Returns:
    The model; `store_bit_swap` makes a codec's of it.
  """
  recipe = config.bitswap
  planes = codes.planes()
  held_out = _hold_out(len(planes))
  learned = planes[~held_out] if len(planes) > 1 else planes
  learned = _Planes(learned.astype(np.int16))
  epochs = recipe.fine_tune_epochs if phase else recipe.epochs
  replicas = strategy.num_replicas_in_sync
  steps = learned.steps(recipe.batch_size, replicas)
  tf.keras.utils.set_random_seed(config.seed + phase)
  rate = recipe.fine_tune_rate if start else recipe.learning_rate
  with strategy.scope():
    model = _build(recipe, vqvae, config.seed + phase, start)
    model.compile(
      training.cosine_adam(
        rate * learning_rate_factor(config, strategy),
        steps=epochs * steps,
        warmup=100,
        final_share=0.01,
        clip_norm=1.0,
      ),
      # A model that is fine-tuned has its latents in use, or never will.
      latent_warmup=0 if start else round(recipe.latent_warmup * steps),
    )
  seed = stream.fold_in(config.seed, _BITSWAP_STREAM, phase)
  training.fit(
    model,
    training.Fit(
      epochs=epochs,
      steps_per_epoch=steps,
      batches=lambda chosen, share: learned.batches(
        recipe.batch_size, chosen, seed, share
      ),
      checkpoints=folder / "checkpoints" / f"bitswap-{phase:03d}",
      tensorboard=folder / "tensorboard" / f"bitswap-{phase:03d}",
      title=f"Bit-Swap, phase {phase}",
    ),
    [_StopWhenFlat(model, planes[held_out], recipe.patience)],
  )
  return model


def store_bit_swap(
  model: BitSwapModel, folder: pathlib.Path, team: Team = ALONE
) -> None:
  """Stores a model's integers as `bitswap.ibbs`; one worker writes."""
  data = bit_swap_file.to_bytes(model)
  team.on_chief(lambda: files.write_bytes(folder / BITSWAP_FILE, data))


def store_static(
  vqvae: HierarchicalVQVAE,
  codes: Codes,
  folder: pathlib.Path,
  team: Team = ALONE,
) -> None:
  """Counts codes, and stores the tables for chains of few images.

  Args:
    vqvae: whose codes they are.
    codes: what to count.
    folder: gets `static.ibst`.
    team: one of its workers writes.
  """
  shape = vqvae.get_config()
  planes = codes.planes()
  coder = static.count_tables(
    planes,
    shape["codebook_size"],
    shape["top_depth"],
    shape["bottom_depth"],
    per_position=False,
  )
  data = coder.to_bytes()
  team.on_chief(lambda: files.write_bytes(folder / STATIC_FILE, data))


def load_code_codec(folder: str | pathlib.Path, **options: int) -> CodeCodec:
  """Reads the stored lossless stage of a codec folder."""
  path = pathlib.Path(folder) / BITSWAP_FILE
  if not path.is_file():
    raise UserError(
      f"the codec folder {folder} has no {BITSWAP_FILE}: give one that "
      f"`python -m ibdrr_tf.codec train` has filled."
    )
  return codec_of(path.read_bytes(), **options)


def _hold_out(count: int) -> np.ndarray:
  """Which images only judge the others' training: bool [count]."""
  every = min(_HELD_OUT, count)
  return np.arange(count) % every == every - 1


class _Planes:
  """Planes, int16 [n, h, w, planes], as stateless batches."""

  def __init__(self, planes: np.ndarray):
    self.planes = planes

  def steps(self, batch_size: int, replicas: int) -> int:
    """Number of batches in an epoch."""
    return len(stream.batch_stops(len(self.planes), batch_size, replicas))

  def batches(
    self,
    batch_size: int,
    epochs: range,
    seed: tf.Tensor,
    share: stream.Share = stream.WHOLE,
  ) -> tf.data.Dataset:
    """Batches of shuffled planes, int32, epoch after epoch."""
    with tf.device("/CPU:0"):
      planes = tf.constant(self.planes)
    return (
      stream.shuffled_batches(
        len(self.planes),
        lambda key: tf.zeros([len(self.planes), 0]),  # Nothing is drawn.
        batch_size=batch_size,
        epochs=epochs,
        seed=seed,
        share=share,
      )
      .map(lambda chosen, _: tf.cast(tf.gather(planes, chosen), tf.int32))
      .prefetch(tf.data.AUTOTUNE)
    )


class _StopWhenFlat(tf.keras.callbacks.Callback):
  """Ends training once held-out codes have not become shorter for a while.

  Its state is kept with the model, so that a resumed run stops where an
  uninterrupted one does.
  """

  def __init__(self, model: BitSwapModel, planes: np.ndarray, patience: int):
    super().__init__()
    self._data = tf.data.Dataset.from_tensor_slices(planes).batch(_BATCH)
    self._patience = patience
    model.best_bits = tf.Variable(np.inf, trainable=False, dtype=tf.float32)
    model.flat_epochs = tf.Variable(0, trainable=False, dtype=tf.int32)

  def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
    bits = self.model.evaluate(self._data, verbose=0, return_dict=True)
    bits = bits["bits_per_code"]
    if logs is not None:
      logs["held_out_bits_per_code"] = bits
    if bits < self.model.best_bits:
      self.model.best_bits.assign(bits)
      self.model.flat_epochs.assign(0)
      return
    self.model.flat_epochs.assign_add(1)
    if self.model.flat_epochs >= self._patience:
      self.model.stop_training = True


def _build(
  recipe: ml_collections.ConfigDict,
  vqvae: HierarchicalVQVAE,
  seed: int,
  start: BitSwapModel | None,
) -> BitSwapModel:
  """A new model for the codebooks, or a copy of one to fine-tune."""
  if start:
    model = BitSwapModel(start.trees, **(start.get_config() | {"seed": seed}))
    # Training leaves other variables in a model, which are not its weights.
    pairs = zip(
      model.trainable_variables, start.trainable_variables, strict=True
    )
    for mine, theirs in pairs:
      mine.assign(theirs)
    return model
  shape = vqvae.get_config()
  books = [book.numpy() for q in vqvae.quantizers for book in q.codebooks]
  return BitSwapModel(
    [code_tree.make_tree(book) for book in books],
    shape["top_depth"],
    shape["bottom_depth"],
    latents=recipe.latents,
    latent_channels=recipe.latent_channels,
    latent_stride=recipe.latent_stride,
    width=recipe.width,
    blocks=recipe.blocks,
    embedding=recipe.embedding,
    seed=seed,
  )
