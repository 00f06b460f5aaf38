"""The lossless stage of a run: Bit-Swap, trained on codes and stored."""

import pathlib

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import files, training
from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.lossless import bit_swap_file, code_tree, static
from ibdrr_tf.codec.lossless.bit_swap_codec import are_alike, codec_of
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.codec.pretrained import BITSWAP_FILE, STATIC_FILE
from ibdrr_tf.data import stream
from ibdrr_tf.distribution import ALONE, Team, learning_rate_factor
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay.codes import Codes

__all__ = [
  "BITSWAP_FILE",
  "STATIC_FILE",
  "BitSwapTrainer",
  "load_code_codec",
  "store_bit_swap",
  "store_static",
]

_BITSWAP_STREAM = 1 << 21
_BATCH = 250
# Every how many-th image is held out to see whether the loss still falls.
_HELD_OUT = 20


class BitSwapTrainer:
  """Trains models on codes, phase after phase.

  Building the graph of a step takes longer than fine-tuning on a few thousand
  images, so a model that keeps its shape is trained in the graph of the last.

  Args:
    config: `config.bitswap` is the recipe.
    vqvae: its codebooks give the trees.
    folder: gets traces in `checkpoints/` and `tensorboard/`.
    strategy: models are made within its scope.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    vqvae: HierarchicalVQVAE,
    folder: pathlib.Path,
    strategy: tf.distribute.Strategy,
  ):
    self._config = config
    self._vqvae = vqvae
    self._folder = folder
    self._strategy = strategy
    self._model: BitSwapModel | None = None

  def train(
    self, codes: Codes, *, phase: int = 0, start: BitSwapModel | None = None
  ) -> BitSwapModel:
    """Trains until the loss on held-out codes falls no more.

    Args:
      codes: what to learn.
      phase: of the run; each has its own traces and batches. Those after the
        base phase have `fine_tune_epochs`.
      start: a model to fine-tune, as it is, whatever the recipe's shape; None
        trains a new one.

    Returns:
      The model; `store_bit_swap` makes a codec's of it. The next training may
      change it.
    """
    config, recipe = self._config, self._config.bitswap
    planes = codes.planes()
    held_out = _hold_out(len(planes))
    learned = planes[~held_out] if len(planes) > 1 else planes
    learned = _Planes(learned.astype(np.int16))
    epochs = recipe.fine_tune_epochs if phase else recipe.epochs
    steps = learned.steps(
      recipe.batch_size, self._strategy.num_replicas_in_sync
    )
    set_random_seed(config.seed + phase)
    model = self._prepared(start)
    # A model that is fine-tuned has its latents in use, or never will.
    warmup = 0 if start else round(recipe.latent_warmup * steps)
    model.restart(config.seed + phase, warmup)
    rate = recipe.fine_tune_rate if start else recipe.learning_rate
    self._rate.set(
      rate * learning_rate_factor(config, self._strategy),
      steps=epochs * steps,
      warmup=100,
    )
    seed = stream.fold_in(config.seed, _BITSWAP_STREAM, phase)
    traces = pathlib.Path(f"step-{phase:03d}", "bitswap")
    training.fit(
      model,
      training.Fit(
        epochs=epochs,
        steps_per_epoch=steps,
        batches=lambda chosen, share: learned.batches(
          recipe.batch_size, chosen, seed, share
        ),
        checkpoints=self._folder / "checkpoints" / traces,
        tensorboard=self._folder / "tensorboard" / "bitswap",
        title=f"Bit-Swap, phase {phase}",
        step=phase,
      ),
      [_StopWhenFlat(model, planes[held_out], recipe.patience)],
    )
    return model

  def _prepared(self, start: BitSwapModel | None) -> BitSwapModel:
    """A compiled model: a new one, or a copy of the one to fine-tune."""
    if start and self._model and are_alike(start, self._model):
      _copy_weights(start, self._model)
      for variable in self._model.optimizer.variables:
        variable.assign(tf.zeros_like(variable))
      return self._model
    with self._strategy.scope():
      model = _build(
        self._config.bitswap, self._vqvae, self._config.seed, start
      )
      self._rate = training.CosineRate(final_share=0.01)
      model.compile(training.adam(self._rate, clip_norm=1.0))
    self._model = model
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
  folder = pathlib.Path(folder)
  pretrained.check_folder(folder, (BITSWAP_FILE,))
  return codec_of((folder / BITSWAP_FILE).read_bytes(), **options)


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
    _copy_weights(start, model)
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
    latent_kernel=recipe.latent_kernel,
    blank=shape.get("blank", False),
    seed=seed,
  )


def _copy_weights(source: BitSwapModel, target: BitSwapModel) -> None:
  # Training leaves other variables in a model, which are not its weights.
  pairs = zip(
    target.trainable_variables, source.trainable_variables, strict=True
  )
  for mine, theirs in pairs:
    mine.assign(theirs)
