"""The command `train`: both stages of a codec, trained and stored."""

import contextlib
import hashlib
import pathlib
import time

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training, distribution
from ibdrr_tf.data.examples import in_memory, select
from ibdrr_tf.data.images import open_images
from ibdrr_tf.data.load import fingerprint, load_data
from ibdrr_tf.data.resize import resize_and_crop
from ibdrr_tf.data.scenario import Scenario
from ibdrr_tf.data.source import Source
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import report
from ibdrr_tf.lock import Lock
from ibdrr_tf.replay.codec import coarsen_codes, encode_examples
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.validation import validate
from ibdrr_tf.workdir import open_workdir

__all__ = ["train"]

# Every how many-th image of a pile is kept for testing.
_TEST = 20


def train(config: ml_collections.ConfigDict, images: str, output: str) -> None:
  """Trains a codec; a training that was interrupted goes on.

  Args:
    config: `vqvae` and `bitswap` are the recipes, the rest says which data.
    images: a folder of image files or a `.npy` array to train on; "" trains on
      the base classes of the config's data set.
    output: the codec's folder.
  """
  validate(config)
  if images and config.vqvae.feature_weight:
    raise UserError(
      "a classifier of the base classes needs labels, which images without a "
      "data set have not: leave out --config.vqvae.feature_weight."
    )
  if images:
    data = _unlabelled(images, config.data.image_size)
  else:
    data = load_data(config)
  _train(config, *data, output)


def _unlabelled(path: str, image_size: int) -> tuple[Source, Scenario]:
  """Makes a data set of images without labels: one class, one phase."""
  pile = open_images(path)
  if not image_size and len(set(pile.sizes)) > 1:
    raise UserError(
      f"the images of {path} have different sizes: set "
      f"--config.data.image_size to bring them to one."
    )
  pixels = [pile.read(number) for number in range(len(pile.sizes))]
  if image_size:
    pixels = [resize_and_crop(image, image_size).numpy() for image in pixels]
  if len(pixels) < _TEST:
    raise UserError(
      f"{path} holds {len(pixels)} images: give at least {_TEST} to train on."
    )
  pixels = np.stack(pixels)
  is_test = np.arange(len(pixels)) % _TEST == _TEST - 1
  train, test = (
    in_memory(part, np.zeros(len(part)))
    for part in (pixels[~is_test], pixels[is_test])
  )
  # The class's name tells one pile from another when a training goes on.
  name = hashlib.sha256(pixels.tobytes()).hexdigest()[:16]
  return Source("images", (name,), train, test), Scenario((0,), (1,))


def _train(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  output: str,
) -> None:
  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  team = distribution.Team(strategy)
  folder = open_workdir(
    output, config, resume=True, data=fingerprint(source), team=team
  ).path
  tf.config.experimental.enable_op_determinism()
  with Lock(folder) if team.is_chief else contextlib.nullcontext():
    _train_stages(config, source, scenario, folder, strategy)


def _train_stages(
  config: ml_collections.ConfigDict,
  source: Source,
  scenario: Scenario,
  folder: pathlib.Path,
  strategy: tf.distribute.Strategy,
) -> None:
  team = distribution.Team(strategy)
  started = time.perf_counter()
  base = select(source.train, scenario, scenario.new_labels(0))
  model = codec_training.train_vqvae(config, base, folder, strategy)
  unseen = range(scenario.boundaries[0], scenario.boundaries[-1])
  test = select(source.test, scenario, unseen or scenario.new_labels(0))
  codec_training.store_vqvae(model, folder, team)
  codec_training.draw_reconstructions(model, base, folder, team)
  team.say(_stored(folder / codec_training.VQVAE_FILE, started))
  quality = codec_training.evaluate_vqvae(model, test)
  used = ", ".join(
    f"{value:.0f} ({name.removesuffix('_perplexity')})"
    for name, value in quality.items()
    if name.endswith("_perplexity")
  )
  seen = "never" if unseen else "also"
  team.say(
    f"{quality['psnr']:.2f} dB PSNR with the stored weights, the mean over "
    f"{len(test)} test images, of classes that training {seen} saw; perplexity "
    f"{used}"
  )
  codes = encode_examples(model, base)
  if config.vqvae.blank:
    # One lossless stage for all rates; a memory fits it to its own.
    details = np.random.default_rng(config.seed).uniform(0, 100, len(codes))
    codes = coarsen_codes(model, codes, details.round())
  started = time.perf_counter()
  trainer = codec_training.BitSwapTrainer(config, model, folder, strategy)
  bit_swap = trainer.train(codes)
  codec_training.store_bit_swap(bit_swap, folder, team)
  codec_training.store_static(model, codes, folder, team)
  team.say(_stored(folder / codec_training.BITSWAP_FILE, started))
  everything = select(
    source.train, scenario, scenario.seen_labels(scenario.phases[-1])
  )
  team.on_chief(lambda: _print_rate(folder, encode_examples(model, everything)))


def _stored(path: pathlib.Path, started: float) -> str:
  seconds = time.perf_counter() - started
  size = report.megabytes(path.stat().st_size)
  return f"{path}: {size} MB, {seconds:.0f} s"


def _print_rate(folder: pathlib.Path, codes: Codes) -> None:
  """Compresses codes, checks that they come back, and says what it took."""
  codec = codec_training.load_code_codec(folder)
  started = time.perf_counter()
  chains = codec.compress(codes.top, codes.bottom)
  encoded = time.perf_counter()
  top, bottom = codec.decompress(chains)
  ended = time.perf_counter()
  if not np.array_equal(top, codes.top) or not np.array_equal(
    bottom, codes.bottom
  ):
    raise RuntimeError("decoded codes differ from what was encoded")
  payload, images = sum(map(len, chains)), len(codes)
  print(
    f"all {images} training images: {report.megabytes(payload)} MB, "
    f"{8 * payload / codes.count:.3f} bits a code, headers and initial bits "
    f"included; encoded {images / (encoded - started):.0f} and decoded "
    f"{images / (ended - encoded):.0f} images/s"
  )
