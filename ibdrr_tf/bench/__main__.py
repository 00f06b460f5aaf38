"""Measurements, each beside its rival in the same run.

    python -m ibdrr_tf.bench lossy --codec=DIR[,DIR...] --data_dir=DATA \
      --config=configs/cifar100_mini.py [--photographs=DIR] [--picture=PNG]

`lossy` prints the order-0 entropies of a codec's codes and its quality against
bytes beside WebP, on test images of the classes after the config's base phase,
and says how many of those the codec was trained on (none, if both have the same
base classes);
`--picture` draws reconstructions; `--classify=DIR` also trains a classifier on
raw images and on each codec's reconstructions of all classes at once, tests
them on raw images, and keeps its checkpoints in DIR.

    python -m ibdrr_tf.bench lossless --codec=DIR --data_dir=DATA --config=…

`lossless` compresses the codes of all training images of the config's classes
in every form there is, checks that they come back, and holds Bit-Swap against
its own ELBO and the range coder against constriction's ANS coder; `--sizes`
adds what sizes of chains and groups cost, on the first 10,000 images.

    python -m ibdrr_tf.bench memory --data_dir=DATA [--codec=DIR[,DIR...]]
    python -m ibdrr_tf.bench replay [--codec=DIR]

`memory` prints the byte ledger of CIFAR-100's 50,000 training images, models
included, beside the paper's. `replay` times training steps that are fed from
bit-strings against steps that are fed from raw images in RAM.
"""

import os

# See ibdrr_tf/main.py.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pathlib
import re
from typing import Any

import tensorflow as tf
from absl import flags

from ibdrr_tf import codec_training, command_line, files
from ibdrr_tf import config as configs
from ibdrr_tf.bench import lossless, lossy, memory, replay
from ibdrr_tf.codec import bit_swap_file, model_file, pretrained, weights
from ibdrr_tf.data import stream
from ibdrr_tf.data.load import fingerprint, load_data
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import figures
from ibdrr_tf.methods import METHODS
from ibdrr_tf.replay.codec import encode_examples
from ibdrr_tf.workdir import open_workdir

__all__ = ["main"]

_SOME = 10_000


def main(argv: list[str]) -> None:
  """Runs the measurement that the first argument names."""
  values = flags.FlagValues()
  command_line.define_run_flags(values)
  for name, text in {
    "codec": f"codecs, parted by commas: {', '.join(pretrained.names())}, or "
    "folders; default " + pretrained.DEFAULT,
    "photographs": "a folder of image files of any size",
    "picture": "where to draw reconstructions at 32, 64 and 224 pixels",
    "classify": "a folder for the checkpoints of classifiers to train",
    "json": "where to write the figures as JSON",
  }.items():
    flags.DEFINE_string(name, "", text, flag_values=values)
  for name, text in {
    "quick": "measure less, in seconds instead of minutes",
    "sizes": "also try sizes of chains and groups",
  }.items():
    flags.DEFINE_boolean(name, False, text, flag_values=values)
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv)
  # Here --codec is a list of folders, and no part of what a run is.
  config.codec = ""
  kinds = {
    "lossy": _lossy,
    "lossless": _lossless,
    "memory": _memory,
    "replay": _replay,
  }
  if not rest or rest[0] not in kinds:
    raise UserError(
      f"there is no measurement {rest[0] if rest else ''!r}: give "
      f"{', '.join(kinds)}."
    )
  command_line.refuse_arguments(rest[1:])
  configs.validate(config, tuple(METHODS))
  if values.picture and not values.photographs:
    raise UserError("--picture needs image files: give --photographs=DIR.")
  measured = kinds[rest[0]](config, values)
  if values.json:
    files.write_json(values.json, measured)


def _folders(values: flags.FlagValues, **options: Any) -> list[str]:
  """The folders of the codecs that `--codec` names."""
  names = (values.codec or pretrained.DEFAULT).split(",")
  return [str(pretrained.folder_of(name, **options)) for name in names]


def _lossy(config: Any, values: flags.FlagValues) -> dict[str, Any]:
  folders = _folders(values, needed=(pretrained.VQVAE_FILE,))
  models = {folder: codec_training.load_vqvae(folder) for folder in folders}
  source, scenario = load_data(config)
  tf.config.experimental.enable_op_determinism()
  measured = lossy.measure(config, source, scenario, models, values.photographs)
  for title, table in measured.items():
    _print_table(title, table)
  if values.picture:
    small = source.test.read(tf.range(8, dtype=tf.int64)).numpy()
    first = next(iter(models.values()))
    figure = lossy.picture(first, small, values.photographs)
    with files.replaced(values.picture) as beside:
      beside.write_bytes(figures.to_png(figure))
  if values.classify:
    accuracies = {}
    for name, model in {"raw images": None, **models}.items():
      # The stored model is in the folder's claim: retrained, it is another.
      identity = fingerprint(source)
      if model:
        stored = weights.to_bytes(model)
        identity += model_file.fingerprint(stored).hex()
      folder = open_workdir(
        str(pathlib.Path(values.classify) / re.sub(r"\W+", "_", name)),
        config,
        resume=True,
        data=identity,
      ).path
      accuracies[name] = {
        "accuracy": lossy.classifier_accuracy(
          config, source, scenario, folder, model
        )
      }
    measured["classifier"] = accuracies
    _print_table("classifier, tested on raw images", accuracies)
  return measured


def _lossless(config: Any, values: flags.FlagValues) -> dict[str, Any]:
  source, scenario = load_data(config)
  labels = scenario.seen_labels(scenario.phases[-1])
  examples = stream.select(source.train, scenario, labels)
  measured = {}
  for folder in _folders(values):
    vqvae = codec_training.load_vqvae(folder)
    encoded = encode_examples(vqvae, examples)
    codes = encoded.top, encoded.bottom
    rows = lossless.measure(folder, codes)
    stored = pathlib.Path(folder) / codec_training.BITSWAP_FILE
    model = bit_swap_file.from_bytes(stored.read_bytes())
    planes = encoded.planes()
    rows["Bit-Swap's own ELBO"] = {
      "bits_per_code": lossless.elbo(model, planes)
    }
    measured[folder] = rows
    _print_table(f"{folder}, {len(planes)} images", rows)
    if values.sizes:
      some = tuple(level[:_SOME] for level in codes)
      measured[f"{folder}, sizes"] = lossless.size_curve(folder, some)
      _print_table(f"{folder}, sizes", measured[f"{folder}, sizes"])
  measured["coder"] = lossless.coder_speed()
  _print_table("decisions", {"one stream": measured["coder"]})
  return measured


def _memory(config: Any, values: flags.FlagValues) -> dict[str, Any]:
  config.dataset = "cifar100"
  config.data.classes = 0
  source, _ = load_data(config)
  codecs = values.codec.split(",") if values.codec else memory.CODECS
  count = _SOME // 10 if values.quick else None
  rows = memory.measure(source, codecs, count)
  _print_table("bytes" if count is None else f"bytes, {count} images", rows)
  return rows


def _replay(config: Any, values: flags.FlagValues) -> dict[str, Any]:
  steps, width = (2, 8) if values.quick else (6, 64)
  rows = replay.measure(
    values.codec or pretrained.DEFAULT, steps=steps, width=width
  )
  _print_table(f"one step, ResNet-18 of width {width}, batch 128", rows)
  return rows


def _print_table(title: str, table: dict[str, dict[str, float]]) -> None:
  """Prints rows under the columns of the longest one."""
  columns = list(max(table.values(), key=len))
  lines = [[title, *columns]]
  lines += [
    [name, *(_cell(row.get(column)) for column in columns)]
    for name, row in table.items()
  ]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  for name, *cells in lines:
    aligned = [cell.rjust(w) for cell, w in zip(cells, widths[1:], strict=True)]
    print("  ".join([name.ljust(widths[0]), *aligned]), flush=True)
  print()


def _cell(value: float | None) -> str:
  if value is None:
    return "–"
  return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


if __name__ == "__main__":
  command_line.run(main, "the same command starts again")
