"""The codec as a command.

    python -m ibdrr_tf.codec train -o DIR --config=configs/cifar100_mini.py \
      --data_dir=DATA

`train` trains both stages on the base classes of a data set and leaves the
stored models, pictures and TensorBoard logs in DIR. Interrupted, the same
command goes on after the last finished epoch.
"""

import os

# See ibdrr_tf/main.py.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import time

import ml_collections
import numpy as np
import tensorflow as tf
from absl import flags

from ibdrr_tf import codec_training, command_line, distribution
from ibdrr_tf import config as configs
from ibdrr_tf.data import stream
from ibdrr_tf.data.load import fingerprint, load_data
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import report
from ibdrr_tf.methods import METHODS
from ibdrr_tf.workdir import open_workdir

__all__ = ["main"]


def main(argv: list[str]) -> None:
  """Runs the command that the first argument names."""
  values = flags.FlagValues()
  command_line.define_run_flags(values)
  flags.DEFINE_string(
    "output", None, "folder of the codec", short_name="o", flag_values=values
  )
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv)
  if not rest or rest[0] != "train":
    raise UserError(
      f"the codec has no command {rest[0] if rest else ''!r}: give 'train'."
    )
  command_line.refuse_arguments(rest[1:])
  if not values.output:
    raise UserError("train has nowhere to put the codec: give -o DIR.")
  configs.validate(config, tuple(METHODS))
  _train(config, values.output)


def _train(config: ml_collections.ConfigDict, output: str) -> None:
  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  source, scenario = load_data(config)
  folder = open_workdir(
    output, config, resume=True, data=fingerprint(source)
  ).path
  tf.config.experimental.enable_op_determinism()
  started = time.perf_counter()
  model = codec_training.train_vqvae(config, source, scenario, folder, strategy)
  unseen = range(scenario.boundaries[0], scenario.boundaries[-1])
  test = {
    "base": stream.select(source.test, scenario, scenario.new_labels(0)),
    "unseen": stream.select(source.test, scenario, unseen),
  }
  before = codec_training.evaluate_vqvae(model, test["unseen"])
  base = stream.select(source.train, scenario, scenario.new_labels(0))
  codec_training.store_vqvae(model, base, folder)
  _print_stored(folder / codec_training.VQVAE_FILE, started)
  for title, examples in test.items():
    quality = codec_training.evaluate_vqvae(model, examples)
    print(
      f"test images of {title} classes: {quality['psnr']:.2f} dB PSNR, "
      f"perplexity {quality['top_perplexity']:.0f} (top), "
      f"{quality['bottom_perplexity']:.0f} (bottom)",
      flush=True,
    )
  print(f"before rounding, unseen classes: {before['psnr']:.2f} dB")
  codes = codec_training.encode_all(model, base)
  started = time.perf_counter()
  codec_training.train_bit_swap(config, model, codes, folder, strategy)
  _print_stored(folder / codec_training.BITSWAP_FILE, started)
  everything = stream.select(
    source.train, scenario, scenario.seen_labels(scenario.phases[-1])
  )
  _print_rate(folder, codec_training.encode_all(model, everything))


def _print_stored(path: pathlib.Path, started: float) -> None:
  seconds = time.perf_counter() - started
  size = report.megabytes(path.stat().st_size)
  print(f"{path}: {size} MB, {seconds:.0f} s", flush=True)


def _print_rate(
  folder: pathlib.Path, codes: tuple[np.ndarray, np.ndarray]
) -> None:
  """Compresses codes, checks that they come back, and says what it took."""
  codec = codec_training.load_code_codec(folder)
  started = time.perf_counter()
  chains = codec.compress(*codes)
  encoded = time.perf_counter()
  back = codec.decompress(chains)
  ended = time.perf_counter()
  if not all(np.array_equal(a, b) for a, b in zip(codes, back, strict=True)):
    raise RuntimeError("decoded codes differ from what was encoded")
  payload = sum(len(chain) for chain in chains)
  count = sum(level.size for level in codes)
  images = len(codes[0])
  print(
    f"all {images} training images: {report.megabytes(payload)} MB, "
    f"{8 * payload / count:.3f} bits a code, headers and initial bits "
    f"included; encoded {images / (encoded - started):.0f} and decoded "
    f"{images / (ended - encoded):.0f} images/s"
  )


if __name__ == "__main__":
  command_line.run(main, "the same command goes on")
