"""Several methods on the same phases: one table and two figures.

Each method runs in WORKDIR/<method>; runs that are finished are not repeated,
and those that were interrupted go on. Example:

    python -m ibdrr_tf.compare --config=configs/cifar100_mini.py \
      --data_dir=DIR --methods=finetune,icarl,lucir --workdir=runs/compared

WORKDIR then holds comparison.md, comparison.json, phase_accuracy.png and
accuracy_against_bytes.png. Runs that are finished already, with whatever
settings, join by their folder or their results.json:

    python -m ibdrr_tf.compare --runs=runs/drr,runs/drr_deep --workdir=DIR
"""

import os

# As in main.py: TensorFlow is silent about GPU libraries that are not there.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import functools
import json
import pathlib
import shlex

import ml_collections
import tensorflow as tf
from absl import flags

from ibdrr_tf import command_line, distribution, experiment, files
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import comparison, figures
from ibdrr_tf.methods import METHODS
from ibdrr_tf.validation import validate

__all__ = ["main"]


def main(argv: list[str]) -> None:
  """Reads flags, runs all methods and writes down how they compare."""
  values = flags.FlagValues()
  command_line.define_run_flags(values)
  text = {
    "methods": f"parted by commas, of {', '.join(sorted(METHODS))}",
    "runs": "parted by commas, finished runs to compare with, as they are: "
    "folders, or their results.json under any name",
    "workdir": "folder with a run for each method",
  }
  for name, help_text in text.items():
    flags.DEFINE_string(name, None, help_text, flag_values=values)
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv)
  command_line.refuse_arguments(rest)
  runs = {}
  for path in _parted(values.runs):
    name, run = _read_run(pathlib.Path(path))
    _refuse_twice(name, runs)
    runs[name] = run
  names = _method_names(values.methods, runs)
  if not values.workdir:
    raise UserError("--workdir is missing: give a folder for all the runs.")
  for name in names:  # Before the first run, which may take hours.
    validate(_with_method(config, name), tuple(METHODS))
  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  team = distribution.Team(strategy)
  folder = pathlib.Path(values.workdir)
  command = shlex.join(["python", "-m", "ibdrr_tf.compare", *argv[1:]])
  for name in names:
    runs[name] = experiment.run_experiment(
      _with_method(config, name),
      str(folder / name),
      strategy=strategy,
      resume=True,
      command=command,
    )
    comparison.check_alike(runs)
    team.say("")
    team.on_chief(functools.partial(_write, folder, dict(runs)))
    # The graphs of one method are of no use to the next.
    tf.keras.backend.clear_session()
  if not names:
    comparison.check_alike(runs)
    team.on_chief(functools.partial(_write, folder, runs))
  team.say(comparison.markdown(runs))


def _parted(text: str | None) -> list[str]:
  return [part.strip() for part in (text or "").split(",") if part.strip()]


def _refuse_twice(name: str, names: list[str] | dict) -> None:
  if name in names:
    raise UserError(f"--methods and --runs name {name} twice: once will do.")


def _method_names(text: str | None, runs: dict) -> list[str]:
  """The names of --methods; there must be some where there are no runs."""
  names = _parted(text)
  if not names and not runs:
    raise UserError(
      f"--methods is missing: give names parted by commas, of "
      f"{', '.join(sorted(METHODS))}."
    )
  for place, name in enumerate(names):
    _refuse_twice(name, [*runs, *names[:place]])
  return names


def _read_run(path: pathlib.Path) -> tuple[str, dict]:
  """A run's name here, after its folder or file, and its results."""
  file = path / "results.json" if path.is_dir() else path
  try:
    run = json.loads(file.read_text(encoding="utf-8"))
    comparison.rows({path.stem: run})
  except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
    raise UserError(
      f"--runs: {file} is missing or holds no results: give folders of runs, "
      f"or files like their results.json."
    ) from error
  return path.stem, run


def _with_method(
  config: ml_collections.ConfigDict, name: str
) -> ml_collections.ConfigDict:
  copy = ml_collections.ConfigDict(config)
  copy.method = name
  return copy


def _write(folder: pathlib.Path, runs: dict[str, dict]) -> None:
  """Writes the comparison of the runs that are finished."""
  rows = comparison.rows(runs)
  figures_by_name = {
    "phase_accuracy": figures.phase_accuracy_figure(runs),
    "accuracy_against_bytes": figures.accuracy_against_bytes_figure(rows),
  }
  for name, figure in figures_by_name.items():
    files.write_bytes(folder / f"{name}.png", figures.to_png(figure))
  files.write_text(folder / "comparison.md", comparison.markdown(runs))
  files.write_json(folder / "comparison.json", rows)


if __name__ == "__main__":
  command_line.run(main, "the same command goes on")
