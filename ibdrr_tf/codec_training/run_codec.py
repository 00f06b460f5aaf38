"""The codec of a run: taken from elsewhere, or trained on its base classes."""

import functools
import pathlib
import shutil

import ml_collections
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.codec import image_codec, pretrained
from ibdrr_tf.codec.lossless.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec_training import lossless, lossy
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.codec import ReplayCodec

__all__ = ["export_codec", "prepare_codec"]


def prepare_codec(
  config: ml_collections.ConfigDict,
  examples: Examples | None,
  workdir: pathlib.Path,
  strategy: tf.distribute.Strategy,
) -> ReplayCodec:
  """Makes sure that a state has its lossy stage, and says how to fit the other.

  Args:
    config: `codec` names one to take both stages from; without it the lossy
      stage is trained on the images of the first step.
    examples: those images; None where the codec is there already.
    workdir: gets `codec/` and `reconstructions.png`.
    strategy: models are made within its scope.
  """
  folder = workdir / "codec"
  path = folder / pretrained.VQVAE_FILE
  team = Team(strategy)
  if not team.is_there(path):
    if examples is None:
      # Another codec, or another start of Bit-Swap, could not read the memory.
      raise UserError(
        f"the codec file {path} is missing, without which the memory cannot be "
        f"read: restore it from a copy."
      )
    if config.codec:
      origin = pretrained.folder_of(config.codec)
      team.on_chief(lambda: _copy(origin, folder))
    else:
      model = lossy.train_vqvae(config, examples, workdir, strategy)
      lossy.store_vqvae(model, folder, team)
  with strategy.scope():
    vqvae = lossy.load_vqvae(folder)
  if examples is not None and not team.is_there(
    workdir / "reconstructions.png"
  ):
    lossy.draw_reconstructions(vqvae, examples, workdir, team)
  return ReplayCodec(
    folder=folder,
    vqvae=vqvae,
    vqvae_bytes=path.stat().st_size,
    fit_bit_swap=lossless.BitSwapTrainer(
      config, vqvae, workdir, strategy
    ).train,
    coder=_coder(config.bitswap.chain_images, config.bitswap.group),
    team=team,
  )


@functools.lru_cache
def _coder(chain_images: int, group: int) -> BitSwapCodec:
  """One for all learners of a process: building its graphs takes seconds."""
  return BitSwapCodec(chain_images=chain_images, group=group)


def _copy(source: pathlib.Path, folder: pathlib.Path) -> None:
  """Takes a codec over; the lossy stage last, for its presence says it all."""
  for name in (
    pretrained.STATIC_FILE,
    pretrained.BITSWAP_FILE,
    pretrained.VQVAE_FILE,
  ):
    # Static tables serve exported codecs alone, and not every codec has them.
    if (source / name).is_file():
      with files.replaced(folder / name) as beside:
        shutil.copyfile(source / name, beside)


def export_codec(folder: pathlib.Path) -> None:
  """Puts a SavedModel beside the stored models of a run's codec.

  Its files are made elsewhere and moved in one by one, so that the models,
  without which memory cannot be read, are never touched.
  """
  made = folder / ".saved_model"
  # One that was killed in the middle has left a part of it.
  shutil.rmtree(made, ignore_errors=True)
  image_codec.export(image_codec.load_image_codec(folder), made)
  for path in made.iterdir():
    target = folder / path.name
    if target.is_dir():
      shutil.rmtree(target)
    path.replace(target)
  made.rmdir()
