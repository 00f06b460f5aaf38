"""Trains the codec of a run on its base classes."""

import pathlib
from collections.abc import Callable

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import files, training
from ibdrr_tf.classifier_training import Recipe, train_classifier
from ibdrr_tf.classifiers.perception import feature_distance
from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.codec.pretrained import VQVAE_FILE
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import Examples, ordered_batches
from ibdrr_tf.distribution import ALONE, Team, learning_rate_factor
from ibdrr_tf.evaluation import figures
from ibdrr_tf.replay.codec import reconstruct

__all__ = [
  "VQVAE_FILE",
  "draw_reconstructions",
  "evaluate_vqvae",
  "load_vqvae",
  "store_vqvae",
  "train_vqvae",
]

# The training set's seed has a path of its own: phases use (phase, purpose).
_VQVAE_STREAM = 1 << 20
_PICTURES = 12
_EVAL_BATCH = 250


def train_vqvae(
  config: ml_collections.ConfigDict,
  examples: Examples,
  folder: pathlib.Path,
  strategy: tf.distribute.Strategy,
) -> HierarchicalVQVAE:
  """Trains the lossy stage on the images of the first step, in float32.

  A training that was interrupted goes on after its last finished epoch.

  Args:
    config: the whole configuration; `config.vqvae` is the recipe.
    examples: images to train on.
    folder: gets `checkpoints/` and `tensorboard/`.
    strategy: the model is made within its scope.

  Returns:
    The model; `store_vqvae` makes a codec's of it.
  """
  recipe = config.vqvae
  steps = examples.steps(recipe.batch_size, strategy.num_replicas_in_sync)
  feature_loss = None
  if recipe.feature_weight:
    feature_loss = _classifier_distance(config, examples, folder, strategy)
  with strategy.scope():
    model = _build(recipe, config.seed, feature_loss)
    factor = learning_rate_factor(config, strategy)
    model.compile(_adam(recipe, steps, factor))
  seed = stream.fold_in(config.seed, _VQVAE_STREAM)
  training.fit(
    model,
    training.Fit(
      epochs=recipe.epochs,
      steps_per_epoch=steps,
      batches=lambda epochs, share: examples.training_batches(
        batch_size=recipe.batch_size,
        epochs=epochs,
        seed=seed,
        augment=Augmentation(0),
        share=share,
      ),
      checkpoints=folder / "checkpoints" / "vqvae",
      tensorboard=folder / "tensorboard" / "vqvae",
      title="VQ-VAE",
    ),
    [
      _Pictures(
        folder / "tensorboard" / "vqvae",
        _some(examples),
        writes=Team(strategy).is_chief,
      )
    ],
  )
  return model


def store_vqvae(
  model: HierarchicalVQVAE, folder: pathlib.Path, team: Team = ALONE
) -> None:
  """Rounds a model's weights, once and for all, and stores `vqvae.ibvq`.

  Args:
    model: from here on it has the weights that are stored.
    folder: made if it is not there.
    team: all of its workers have the model; one writes.
  """
  vqvae_file.round_weights(model)
  data = vqvae_file.to_bytes(model)
  team.on_chief(lambda: files.write_bytes(folder / VQVAE_FILE, data))


def draw_reconstructions(
  model: HierarchicalVQVAE,
  examples: Examples,
  folder: pathlib.Path,
  team: Team = ALONE,
) -> None:
  """Draws some images and what is left of them: `reconstructions.png`."""
  figure = _reconstruction_figure(model, _some(examples))
  picture = figures.to_png(figure)
  path = folder / "reconstructions.png"
  team.on_chief(lambda: files.write_bytes(path, picture))


def load_vqvae(folder: str | pathlib.Path) -> HierarchicalVQVAE:
  """Reads the stored lossy stage of a codec folder."""
  folder = pathlib.Path(folder)
  pretrained.check_folder(folder, (VQVAE_FILE,))
  return vqvae_file.from_bytes((folder / VQVAE_FILE).read_bytes())


def evaluate_vqvae(
  model: HierarchicalVQVAE, examples: Examples
) -> dict[str, float]:
  """PSNR (mean over images) and perplexities on some examples."""
  model.compile()
  return model.evaluate(
    ordered_batches(examples, _EVAL_BATCH), verbose=0, return_dict=True
  )


def _some(examples: Examples) -> tf.Tensor:
  """A few images from all over a set: uint8 [n, h, w, 3]."""
  places = np.linspace(0, len(examples) - 1, _PICTURES)
  return examples.read(tf.constant(places.astype(np.int64)))


def _build(
  recipe: ml_collections.ConfigDict,
  seed: int,
  feature_loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None,
) -> HierarchicalVQVAE:
  model = HierarchicalVQVAE(
    codebook_size=recipe.codebook_size,
    embedding=recipe.embedding,
    channels=recipe.channels,
    residual_blocks=recipe.residual_blocks,
    residual_channels=recipe.residual_channels,
    top_depth=recipe.top_depth,
    bottom_depth=recipe.bottom_depth,
    commitment=recipe.commitment,
    codebook=recipe.codebook,
    layout=recipe.layout,
    seed=seed,
    feature_loss=feature_loss,
    feature_weight=recipe.feature_weight,
    blank=recipe.blank,
    stage_dropout=recipe.stage_dropout,
    kernel_levels=recipe.kernel_levels,
  )
  if recipe.start_from:
    origin = pretrained.folder_of(recipe.start_from, (VQVAE_FILE,))
    model.warm_start(load_vqvae(origin))
  return model


def _adam(
  recipe: ml_collections.ConfigDict, steps_per_epoch: int, factor: float
) -> tf.keras.optimizers.Adam:
  rate = recipe.learning_rate * factor
  if recipe.schedule == "constant":
    return training.adam(rate, recipe.clip_norm)
  schedule = training.CosineRate(final_share=0.002)
  schedule.set(
    rate, steps=recipe.epochs * steps_per_epoch, warmup=recipe.warmup_steps
  )
  return training.adam(schedule, recipe.clip_norm)


def _classifier_distance(
  config: ml_collections.ConfigDict,
  examples: Examples,
  folder: pathlib.Path,
  strategy: tf.distribute.Strategy,
) -> Callable[[tf.Tensor, tf.Tensor], tf.Tensor]:
  """Trains a small classifier on the raw images and looks through it."""
  small = config.copy_and_resolve_references()
  small.classifier.width = config.vqvae.feature_width
  small.classifier.epochs = config.vqvae.feature_epochs
  # The VQ-VAE's gradients pass through it, and nothing scales them.
  small.precision = "float32"
  network, _ = train_classifier(
    examples,
    classes=int(examples.labels.max()) + 1,
    image_shape=examples.image_shape,
    config=small,
    strategy=strategy,
    folder=folder / "features",
    recipe=Recipe(frozen_gradients=True),
    title="feature network",
  )
  return feature_distance(network.classifier)


def _reconstruction_figure(
  model: HierarchicalVQVAE, images: tf.Tensor
) -> figures.Figure:
  return figures.image_rows(
    {
      "original": images.numpy(),
      "reconstruction": reconstruct(model, images).numpy(),
    }
  )


class _Pictures(tf.keras.callbacks.Callback):
  """Shows what the codec makes of images, and which codes it uses.

  After epochs 1, 2, 4, 8, … and the last: each costs as much as many steps.
  All workers must have it, for they count codes together; one writes.
  """

  def __init__(self, folder: pathlib.Path, images: tf.Tensor, writes: bool):
    super().__init__()
    self._writer = (
      tf.summary.create_file_writer(str(folder / "pictures"))
      if writes
      else tf.summary.create_noop_writer()
    )
    self._images = images

  def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
    done = epoch + 1
    if done & epoch and done < self.params["epochs"]:
      return
    picture = figures.to_png(_reconstruction_figure(self.model, self._images))
    with self._writer.as_default(step=epoch):
      tf.summary.image(
        "original above reconstruction", tf.io.decode_png(picture)[tf.newaxis]
      )
      for level in self.model.usages:
        name = level.name.removesuffix("_perplexity")
        tf.summary.histogram(
          f"usage of {name} codes", tf.convert_to_tensor(level.histogram)
        )
    self._writer.flush()
