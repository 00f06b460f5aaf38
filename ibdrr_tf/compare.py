"""Several methods on the same phases: one table and two figures.

Each method runs in WORKDIR/<method>; runs that are finished are not repeated,
and those that were interrupted go on. Example:

    python -m ibdrr_tf.compare --config=configs/cifar100_mini.py \
      --data_dir=DIR --methods=finetune,icarl,lucir --workdir=runs/compared

WORKDIR then holds comparison.md, comparison.json, phase_accuracy.png and
accuracy_against_bytes.png.
"""

import os

# As in main.py: TensorFlow is silent about GPU libraries that are not there.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import functools
import pathlib
import shlex

import ml_collections
import tensorflow as tf
from absl import flags

from ibdrr_tf import command_line, distribution, experiment, files
from ibdrr_tf import config as configs
from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import comparison, figures
from ibdrr_tf.methods import METHODS

__all__ = ["main"]


def main(argv: list[str]) -> None:
  """Reads flags, runs all methods and writes down how they compare."""
  values = flags.FlagValues()
  command_line.define_run_flags(values)
  text = {
    "methods": f"parted by commas, of {', '.join(sorted(METHODS))}",
    "workdir": "folder with a run for each method",
  }
  for name, help_text in text.items():
    flags.DEFINE_string(name, None, help_text, flag_values=values)
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv)
  command_line.refuse_arguments(rest)
  names = _method_names(values.methods)
  if not values.workdir:
    raise UserError("--workdir is missing: give a folder for all the runs.")
  for name in names:  # Before the first run, which may take hours.
    configs.validate(_with_method(config, name), tuple(METHODS))
  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  team = distribution.Team(strategy)
  folder = pathlib.Path(values.workdir)
  command = shlex.join(["python", "-m", "ibdrr_tf.compare", *argv[1:]])
  runs = []
  for name in names:
    runs.append(
      experiment.run_experiment(
        _with_method(config, name),
        str(folder / name),
        strategy=strategy,
        resume=True,
        command=command,
      )
    )
    team.say("")
    team.on_chief(functools.partial(_write, folder, list(runs)))
    # The graphs of one method are of no use to the next.
    tf.keras.backend.clear_session()
  team.say(comparison.markdown(runs))


def _method_names(text: str | None) -> list[str]:
  names = [name.strip() for name in (text or "").split(",") if name.strip()]
  if not names:
    raise UserError(
      f"--methods is missing: give names parted by commas, of "
      f"{', '.join(sorted(METHODS))}."
    )
  for name in names:
    if names.count(name) > 1:
      raise UserError(f"--methods names {name} twice: give each name once.")
  return names


def _with_method(
  config: ml_collections.ConfigDict, name: str
) -> ml_collections.ConfigDict:
  copy = ml_collections.ConfigDict(config)
  copy.method = name
  return copy


def _write(folder: pathlib.Path, runs: list[dict]) -> None:
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
