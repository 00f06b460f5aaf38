"""The kinds of measurement: each loads what it needs, measures and prints."""

import os
import pathlib
import re
from collections.abc import Callable
from typing import Any

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import codec_training, distribution, files
from ibdrr_tf.bench import (
  accuracy,
  arriving,
  drift,
  forms,
  growth,
  lossless,
  lossy,
  memory,
  precision,
  replay,
  rivals,
  streaming,
  train,
)
from ibdrr_tf.bench.options import Options
from ibdrr_tf.bench.table import print_table
from ibdrr_tf.choices import PRECISIONS
from ibdrr_tf.codec import model_file, pretrained
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.data.examples import Examples, in_memory, select
from ibdrr_tf.data.load import fingerprint, load_data
from ibdrr_tf.data.source import Source
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import figures
from ibdrr_tf.replay.codec import encode_examples
from ibdrr_tf.workdir import open_workdir

__all__ = ["KINDS"]

_SOME = 10_000
_COUNTS = (500, 2_000, 10_000, 50_000)
_SIZES = (32, 64, 224)
# Of each size; and what --quick takes of all.
_OF_A_SIZE = 250
_QUICK_COUNTS = (100, 400)
_QUICK_OF_A_SIZE = 8
# Of networks whose speed is compared.
_WIDTHS, _QUICK_WIDTHS = (8, 12, 16, 24, 32), (8, 16)


def _lossy(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  folders = options.folders(
    (pretrained.DEFAULT,), needed=(pretrained.VQVAE_FILE,)
  )
  models = {folder: codec_training.load_vqvae(folder) for folder in folders}
  source, scenario = load_data(config)
  tf.config.experimental.enable_op_determinism()
  measured = lossy.measure(
    config, source, scenario, models, options.photographs
  )
  for title, table in measured.items():
    print_table(title, table)
  if options.picture:
    small = source.test.read(tf.range(8, dtype=tf.int64)).numpy()
    first = next(iter(models.values()))
    figure = lossy.picture(first, small, options.photographs)
    with files.replaced(options.picture) as beside:
      beside.write_bytes(figures.to_png(figure))
  if options.classify:
    accuracies = {}
    for name, model in {"raw images": None, **models}.items():
      # The stored model is in the folder's claim: retrained, it is another.
      identity = fingerprint(source)
      if model:
        stored = vqvae_file.to_bytes(model)
        identity += model_file.fingerprint(stored).hex()
      folder = open_workdir(
        str(pathlib.Path(options.classify) / re.sub(r"\W+", "_", name)),
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
    print_table("classifier, tested on raw images", accuracies)
  return measured


def _lossless(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  folders = options.folders((pretrained.DEFAULT,))
  source, scenario = load_data(config)
  labels = scenario.seen_labels(scenario.phases[-1])
  examples = select(source.train, scenario, labels)
  measured = {}
  for folder in folders:
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
    print_table(f"{folder}, {len(planes)} images", rows)
    if options.sizes:
      some = tuple(level[:_SOME] for level in codes)
      measured[f"{folder}, sizes"] = lossless.size_curve(folder, some)
      print_table(f"{folder}, sizes", measured[f"{folder}, sizes"])
  return {**measured, **_rivals()}


def _codec(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  names = _codecs(options)
  folders = options.folders(names)
  source = _source(config, options)
  counts, of_a_size = _COUNTS, _OF_A_SIZE
  if options.quick:
    counts, of_a_size = _QUICK_COUNTS, _QUICK_OF_A_SIZE
  images = _some_images(source.train, counts[-1])
  print(f"data: {len(images):,} training images of {source.name}\n")
  measured: dict[str, Any] = {"data": source.name, "images": len(images)}
  examples = in_memory(images, np.zeros(len(images)))
  by_images = {"by images": growth.of_counts(images, counts)}
  large = options.photographs or images
  by_size = {"by size": growth.at_sizes(large, _SIZES, of_a_size)}
  # A process takes long to start, but one for both blurs their peaks.
  parts = [by_images | by_size] if options.quick else [by_images, by_size]
  for name, folder in zip(names, folders, strict=True):
    codes = encode_examples(codec_training.load_vqvae(folder), examples)
    tables = {"forms": lossless.measure(folder, (codes.top, codes.bottom))}
    for part in parts:
      tables |= growth.measure_apart(folder, part)
    for title, table in tables.items():
      print_table(f"{name}, {title}", table)
    measured[name] = tables
  return {**measured, **_rivals()}


def _memory(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  codecs = _codecs(options)
  source = _source(config, options)
  count = _SOME // 10 if options.quick else None
  print(f"data: {source.name}\n")
  ledgers = memory.measure(source, codecs, count)
  print_table("bytes" if count is None else f"bytes, {count} images", ledgers)
  images = _some_images(source.test, count)
  quality = memory.quality(images, codecs)
  print_table(f"an image, {len(images):,} test images", quality)
  return {"data": source.name, "ledgers": ledgers, "quality": quality}


def _replay(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  del config
  steps, width = (2, 8) if options.quick else (6, 64)
  measured = {}
  for name in options.codecs or (pretrained.DEFAULT,):
    measured[name] = replay.measure(name, steps=steps, width=width)
    title = f"{name}: one step, ResNet-18 of width {width}, batch 128"
    print_table(title, measured[name])
  return measured


def _train(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  epochs, methods = 4, train.METHODS
  config.codec = (options.codecs or (pretrained.DEFAULT,))[0]
  if options.quick:
    epochs, methods = 3, train.METHODS[1:]
    config.data.shapes_train = min(config.data.shapes_train, 20)
    config.data.shapes_test = min(config.data.shapes_test, 2)
    if not options.codecs:
      config.codec = memory.CODECS[0]  # Fewer planes, sooner built.
  # Where devices are named, they are what is measured, and nothing else.
  alone = config.distribute != "auto"
  strategy = distribution.make_strategy(
    config.distribute if alone else "none", config.cpu_devices if alone else 0
  )
  source, scenario = load_data(config)
  # As in a run, where it costs what it costs.
  tf.config.experimental.enable_op_determinism()
  rows = train.measure(
    config, source, scenario, strategy, epochs=epochs, methods=methods
  )
  title = f"{source.name}, {epochs - 1} epochs after the first"
  if not alone:
    # Of flags that are given twice the last one counts.
    devices = f"--cpu_devices={config.cpu_devices or 2}"
    several = train.measure_apart(
      [*options.arguments, "--distribute=mirrored", devices]
    )
    rows = train.compare(rows, several)
  print_table(title, rows)
  return rows


def _stream(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  del config
  images, steps = (4_000, 2) if options.quick else (300_000, 10)
  measured = {}
  for name in options.codecs or memory.CODECS[:1]:
    measured[name] = streaming.measure(name, images=images, steps=steps)
    print_table(f"{name}: one epoch, batch 128", measured[name])
  return measured


def _accuracy(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  if not options.json:
    raise UserError(
      "accuracy takes hours and keeps each training in a file: give --json."
    )
  recipe = accuracy.protocol()
  recipe.data_dir = config.data_dir
  steps, names = options.steps, options.codecs
  if steps == 1:
    every, ours = forms.rivals(), [forms.code_form(name) for name in names]
  else:
    every = arriving.arriving_rivals(steps)
    ours = [arriving.arriving_form("drr", steps, name) for name in names]
  for name, form in zip(names, ours, strict=True):
    every[f"ours ({pathlib.Path(name).name})"] = form
  unknown = [name for name in options.forms if name not in every]
  if unknown:
    raise UserError(
      f"there is no form {unknown[0]!r}: give {', '.join(every)}."
    )
  chosen = options.forms or tuple(every)
  source, scenario = load_data(recipe)
  tf.config.experimental.enable_op_determinism()
  plan = accuracy.Plan(options.images, options.budgets, options.seeds, steps)
  measured = accuracy.measure(
    recipe,
    source,
    scenario,
    {name: every[name] for name in chosen},
    plan,
    pathlib.Path(options.json),
  )
  print_table("form", accuracy.table(measured))
  return measured


def _drift(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  codec = (options.codecs or (pretrained.DEFAULT,))[0]
  options.folders((codec,))
  if options.quick:
    config.data.shapes_train = min(config.data.shapes_train, 60)
    for name in drift.RIVALS:
      config[name].coder_epochs = config[name].coder_updates = 4
  source, scenario = load_data(config)
  tf.config.experimental.enable_op_determinism()
  measured = drift.measure(config, source, scenario, codec)
  title = f"PSNR of the first classes, {source.name}"
  print_table(title, drift.table(measured))
  return {"data": source.name, "memories": measured}


def _precision(
  config: ml_collections.ConfigDict, options: Options
) -> dict[str, Any]:
  widths = _QUICK_WIDTHS if options.quick else _WIDTHS
  steps = 3 if options.quick else 15
  precisions = tuple(name for name in PRECISIONS if name != "float16")
  if tf.config.list_physical_devices("GPU"):
    precisions = tuple(PRECISIONS)
  measured = precision.measure(widths, precisions, steps)
  print_table("training, images/s", measured)
  return measured


KINDS: dict[
  str, Callable[[ml_collections.ConfigDict, Options], dict[str, Any]]
] = {
  "codec": _codec,
  "replay": _replay,
  "train": _train,
  "precision": _precision,
  "memory": _memory,
  "stream": _stream,
  "accuracy": _accuracy,
  "lossy": _lossy,
  "lossless": _lossless,
  "drift": _drift,
}


def _codecs(options: Options) -> tuple[str, ...]:
  """Those that were asked for, else both rates of CIFAR-100's; quick is one."""
  return options.codecs or memory.CODECS[: 1 if options.quick else None]


def _source(config: ml_collections.ConfigDict, options: Options) -> Source:
  """The data set that was asked for, else CIFAR-100, all classes.

  The quick form needs no files: it takes the generated images where there is no
  CIFAR-100 at hand.
  """
  config.data.classes = 0
  if not options.dataset and config.dataset == "shapes":
    root = config.data_dir or os.environ.get("TFDS_DATA_DIR", "")
    at_hand = root and (pathlib.Path(root) / "cifar100").is_dir()
    if at_hand or not options.quick:
      config.dataset = "cifar100"
  return load_data(config)[0]


def _some_images(split: Examples, count: int | None) -> np.ndarray:
  """Images from all over a split, uint8 [n, h, w, 3]; None is all of them."""
  total = len(split.labels)
  places = np.linspace(0, total - 1, min(count or total, total))
  return split.read(tf.constant(places.round().astype(np.int64))).numpy()


def _rivals() -> dict[str, Any]:
  """Prints and gives the speed of two coders, and says what is missing."""
  measured = {}
  speed = lossless.coder_speed()
  if speed:
    measured["coder"] = speed
    print_table("decisions", {"one stream": speed})
  for sentence in rivals.missing():
    print(sentence)
    measured.setdefault("missing", []).append(sentence)
  return measured
