r"""Class-incremental learning, phase after phase.

Without any flag it runs the embedded demonstration. Examples:

    python -m ibdrr_tf.main --phases=5
    python -m ibdrr_tf.main --config=configs/cifar100_mini.py --data_dir=DIR
    python -m ibdrr_tf.main --config=configs/folder.py --data_dir=DIR \
      --config.data.image_size=64 --workdir=runs/mine --resume
"""

import os

# TensorFlow reports at start which GPU libraries it did not find, in several
# lines that look like errors. What really fails raises an exception.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import shlex

from absl import flags

from ibdrr_tf import choices, command_line
from ibdrr_tf.config import demo_config
from ibdrr_tf.validation import check_circumstances, check_codec, validate

__all__ = ["main"]


def main(argv: list[str]) -> None:
  """Reads flags and runs the experiment."""
  values = flags.FlagValues()
  _define_flags(values)
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv, demo_config)
  command_line.refuse_arguments(rest)
  command_line.load_plugin(values.plugin)
  validate(config)
  check_circumstances(config)
  # The newest run, which is resumed without a workdir, may have its own codec.
  if values.workdir or not values.resume:
    check_codec(config, values.workdir or "")
  command_line.say_starting()
  from ibdrr_tf import distribution, experiment, workdir
  from ibdrr_tf.methods import check_method

  check_method(config)
  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  path = values.workdir or workdir.default_path(config, values.resume)
  experiment.run_experiment(
    config,
    path,
    strategy=strategy,
    resume=values.resume,
    command=shlex.join(["python", "-m", "ibdrr_tf.main", *argv[1:]]),
  )
  distribution.Team(strategy).say(f"\n{command_line.next_commands(path)}")


def _define_flags(values: flags.FlagValues) -> None:
  command_line.define_run_flags(values)
  command_line.define_codec_flag(values)
  text = {
    "method": f"how to learn, by what is kept: {choices.method_list()}",
    "workdir": "folder of the run; default runs/<dataset>-<method>-<time>",
  }
  for name, help_text in text.items():
    flags.DEFINE_string(name, None, help_text, flag_values=values)
  flags.DEFINE_boolean(
    "resume", False, "go on with the run in --workdir", flag_values=values
  )


if __name__ == "__main__":
  command_line.run(main, "the same command with --workdir and --resume goes on")
