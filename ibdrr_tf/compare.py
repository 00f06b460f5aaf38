r"""Several methods on the same phases: one table and two figures.

Each method runs in WORKDIR/<method>; runs that are finished are not repeated,
and those that were interrupted go on. Example:

    python -m ibdrr_tf.compare --config=configs/cifar100_mini.py \
      --data_dir=DIR --methods=finetune,icarl,lucir --workdir=runs/compared

WORKDIR then holds report.html, comparison.md, comparison.json,
phase_accuracy.png and accuracy_against_bytes.png. With `--seeds=0,1,2` each
method runs with each of them, in WORKDIR/<method>-seed-<seed>, and its row has
means and standard deviations; `--class_orders=1993,1,2` crosses them with class
orders, in WORKDIR/<method>-order-<order>-seed-<seed>. Each row is compared with
`--reference=drr`, run by run of the same seed and order. Runs that are finished
already join by their folder or their results.json:

    python -m ibdrr_tf.compare --runs=runs/drr,runs/drr_deep --workdir=DIR

Of these too, `drr-seed-1`, if its seed is 1, is counted to `drr`. Runs of
different data, classes or phases are refused; `--mixed` takes them all the
same, and the table says so.
"""

import os

# As in main.py: TensorFlow is silent about GPU libraries that are not there.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import functools
import itertools
import json
import pathlib
import shlex

import ml_collections
from absl import flags

from ibdrr_tf import choices, command_line, files
from ibdrr_tf.config import demo_config
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import comparison
from ibdrr_tf.evaluation.predictions import read_predictions
from ibdrr_tf.validation import check_circumstances, check_codec, validate

__all__ = ["main"]


def main(argv: list[str]) -> None:
  """Reads flags, runs all methods and writes down how they compare."""
  values = flags.FlagValues()
  command_line.define_run_flags(values)
  command_line.define_codec_flag(values)
  text = {
    "methods": f"comma-separated, of these: {choices.method_list()}",
    "runs": "separated by commas, finished runs to compare with, as they are: "
    "folders, or their results.json under any name",
    "seeds": "comma-separated seeds; each method runs once per seed",
    "class_orders": "comma-separated class orders (seeds, or natural); each "
    "method runs once per order and seed",
    "reference": f"row that all others are compared with; default "
    f"{comparison.REFERENCE}",
    "workdir": "folder with a run for each method",
  }
  for name, help_text in text.items():
    flags.DEFINE_string(name, None, help_text, flag_values=values)
  flags.DEFINE_boolean(
    "mixed",
    False,
    "compare runs of different data, classes or phases all the same",
    flag_values=values,
  )
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv, demo_config)
  command_line.refuse_arguments(rest)
  command_line.load_plugin(values.plugin)
  runs = {}
  for path in _parted(values.runs):
    name, run = _read_run(pathlib.Path(path))
    _refuse_twice(name, runs)
    runs[name] = run
  configs = _configs(config, values, runs)
  if not values.workdir:
    raise UserError("--workdir is missing: give a folder for all the runs.")
  # Mistakes are to be met before the first run, which may take hours.
  for name, planned in configs.items():
    validate(planned)
    check_circumstances(planned)
    check_codec(planned, pathlib.Path(values.workdir) / name)
  planned_groups = comparison.over_seeds({**runs, **configs})
  if not values.mixed:
    comparison.check_orders(planned_groups)
  reference = values.reference or comparison.REFERENCE
  if values.reference and reference not in planned_groups:
    raise UserError(
      f"--reference={reference} is not among the rows: choose from "
      f"{', '.join(planned_groups)}."
    )
  grouped = functools.partial(_grouped, mixed=values.mixed)
  if runs:
    grouped(runs)
  command_line.say_starting()
  import tensorflow as tf

  from ibdrr_tf import distribution, experiment
  from ibdrr_tf.methods import check_method

  for planned in configs.values():
    check_method(planned)
  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  team = distribution.Team(strategy)
  folder = pathlib.Path(values.workdir)
  team.on_chief(lambda: files.check_writable(folder / "comparison.md"))
  command = shlex.join(["python", "-m", "ibdrr_tf.compare", *argv[1:]])
  for name, planned in configs.items():
    results = experiment.run_experiment(
      planned,
      str(folder / name),
      strategy=strategy,
      resume=True,
      command=command,
    )
    runs[name] = {**results, "predictions": read_predictions(folder / name)}
    team.say("")
    team.on_chief(functools.partial(_write, folder, grouped(runs), reference))
    # The graphs of one method are of no use to the next.
    tf.keras.backend.clear_session()
  groups = grouped(runs)
  if not configs:
    team.on_chief(functools.partial(_write, folder, groups, reference))
  team.say(comparison.markdown(groups, reference))
  team.say(f"see   {folder / 'report.html'}")


def _grouped(runs: dict[str, dict], *, mixed: bool) -> dict[str, list[dict]]:
  if not mixed:
    comparison.check_alike(runs)
  return comparison.over_seeds(runs)


def _parted(text: str | None) -> list[str]:
  return [part.strip() for part in (text or "").split(",") if part.strip()]


def _refuse_twice(name: str, names: list[str] | dict) -> None:
  if name in names:
    raise UserError(
      f"--methods, --seeds and --runs name {name} twice: once will do."
    )


def _configs(
  config: ml_collections.ConfigDict, values: flags.FlagValues, runs: dict
) -> dict[str, ml_collections.ConfigDict]:
  """What is to be run, by name; nothing only where there are finished runs."""
  methods = _parted(values.methods)
  if not methods and not runs:
    raise UserError(
      f"--methods is missing: give names separated by commas, of "
      f"{', '.join(sorted(choices.METHODS))}."
    )
  seeds = _parted(values.seeds)
  for seed in seeds:
    if not seed.isdecimal():
      raise UserError(f"--seeds names {seed!r}: give whole numbers: 0,1,2.")
  if seeds and values.seed is not None:
    raise UserError("--seed and --seeds are both given: one of them will do.")
  if seeds and not methods:
    raise UserError(
      "--seeds is for --methods to be run: name some, or drop it."
    )
  orders = _parted(values.class_orders)
  for order in orders:
    if order != "natural" and not order.isdecimal():
      raise UserError(
        f"--class_orders names {order!r}: give seeds of class orders: 1993,1,2."
      )
  if orders and not methods:
    raise UserError(
      "--class_orders is for --methods to be run: name some, or drop it."
    )
  configs = {}
  planned_runs = itertools.product(methods, orders or [""], seeds or [""])
  for method, order, seed in planned_runs:
    name = f"{method}-order-{order}" if order else method
    name += f"-seed-{int(seed)}" if seed else ""
    _refuse_twice(name, [*runs, *configs])
    planned = ml_collections.ConfigDict(config)
    planned.method = method
    if order:
      planned.data.class_order = order
    if seed:
      planned.seed = int(seed)
    configs[name] = planned
  return configs


def _read_run(path: pathlib.Path) -> tuple[str, dict]:
  """A run's name here, after its folder or file, and its results."""
  # A folder may well have a point in its name: drr_weight_0.5.
  is_folder = path.is_dir()
  name = path.name if is_folder else path.stem
  file = path / "results.json" if is_folder else path
  try:
    run = json.loads(file.read_text(encoding="utf-8"))
    comparison.rows(comparison.over_seeds({name: run}))
  except (
    *(OSError, ValueError, KeyError, TypeError, IndexError),
    *(AttributeError, RecursionError),
  ) as error:
    raise UserError(
      f"--runs: {file} is missing or holds no results: give folders of runs, "
      f"or files like their results.json."
    ) from error
  if is_folder:
    run["predictions"] = read_predictions(path)
  return name, run


def _write(
  folder: pathlib.Path, groups: dict[str, list[dict]], reference: str
) -> None:
  """Writes the comparison of the runs that are finished."""
  # Matplotlib takes a second.
  from ibdrr_tf.evaluation import figures
  from ibdrr_tf.evaluation.comparison_page import comparison_page

  rows = comparison.rows(groups, reference)
  figures_by_name = {
    "phase_accuracy": figures.phase_accuracy_figure(groups),
    "accuracy_against_bytes": figures.accuracy_against_bytes_figure(rows),
  }
  for name, figure in figures_by_name.items():
    files.write_bytes(folder / f"{name}.png", figures.to_png(figure))
  text = comparison.markdown(groups, reference)
  files.write_text(folder / "comparison.md", text)
  files.write_text(folder / "report.html", comparison_page(groups, rows))
  files.write_json(folder / "comparison.json", rows)


if __name__ == "__main__":
  command_line.run(main, "the same command goes on")
