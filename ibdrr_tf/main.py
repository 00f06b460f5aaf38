"""Class-incremental learning, phase after phase.

Without any flag it runs the embedded demonstration. Examples:

    python -m ibdrr_tf.main --phases=5
    python -m ibdrr_tf.main --config=configs/cifar100_mini.py --data_dir=DIR
    python -m ibdrr_tf.main --dataset=folder --data_dir=DIR \
      --config.data.image_size=64 --workdir=runs/mine --resume
"""

import os

# TensorFlow reports at start which GPU libraries it did not find, in several
# lines that look like errors. What really fails raises an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import shlex
import sys

import ml_collections
from absl import flags

from ibdrr_tf import command_line, distribution, experiment, workdir
from ibdrr_tf import config as configs
from ibdrr_tf.methods import METHODS

__all__ = ["main"]


def main(argv: list[str]) -> None:
  """Reads flags and runs the experiment."""
  values = flags.FlagValues()
  _define_flags(values)
  if command_line.wants_help(argv):
    command_line.define_config(values, argv[:1])
    print(f"{__doc__}\n{values.get_help()}")
    return
  argv = command_line.define_config(values, argv)
  command_line.parse_flags(values, argv)
  config = _override(values)
  configs.validate(config, tuple(METHODS))
  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  experiment.run_experiment(
    config,
    values.workdir or workdir.default_path(config, values.resume),
    strategy=strategy,
    resume=values.resume,
    command=shlex.join(["python", "-m", "ibdrr_tf.main", *sys.argv[1:]]),
  )


def _define_flags(values: flags.FlagValues) -> None:
  """Flags for what is set most often; where given, they override the config."""
  text = {
    "method": f"how to learn: {', '.join(sorted(METHODS))}",
    "dataset": "shapes, folder, or a TensorFlow Datasets name such as cifar100",
    "data_dir": "folder of the data set",
    "workdir": "folder of the run; default runs/<dataset>-<method>-<time>",
    "distribute": f"devices: {', '.join(distribution.STRATEGIES)}",
  }
  for name, help_text in text.items():
    flags.DEFINE_string(name, None, help_text, flag_values=values)
  numbers = {
    "phases": "phases after the base phase",
    "cpu_devices": "logical CPU devices, to try mirrored without a GPU",
    "seed": "of weights, batches and generated data",
  }
  for name, help_text in numbers.items():
    flags.DEFINE_integer(name, None, help_text, flag_values=values)
  flags.DEFINE_boolean(
    "resume", False, "go on with the run in --workdir", flag_values=values
  )


def _override(values: flags.FlagValues) -> ml_collections.ConfigDict:
  """The config with the explicit flags set in it."""
  config = values.config
  for name in (
    "method",
    "dataset",
    "data_dir",
    "distribute",
    "cpu_devices",
    "seed",
  ):
    if values[name].value is not None:
      config[name] = values[name].value
  if values.phases is not None:
    config.scenario.phases = values.phases
  return config


if __name__ == "__main__":
  command_line.run(main)
