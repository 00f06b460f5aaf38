r"""Continual learning that remembers every image as a bit-string.

    ibdrr learn DIR --state=STATE        learn the classes DIR/<class>/*
    ibdrr classify IMAGE… --state=STATE  name the classes of images
    ibdrr evaluate DIR --state=STATE     accuracy on labelled images, by class
    ibdrr status --state=STATE           classes, images, bytes, history
    ibdrr forget CLASS --state=STATE     take a class out of memory and head

    ibdrr run …      a benchmark: all phases of a data set (ibdrr_tf.main)
    ibdrr compare …  several methods, one table (ibdrr_tf.compare)
    ibdrr codec …    images to bit-strings and back (ibdrr_tf.codec)
    ibdrr bench …    measurements beside rivals (ibdrr_tf.bench)

`ibdrr COMMAND --help` lists the flags of a command.
"""

import importlib
import os
import sys

# See ibdrr_tf/main.py.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from ibdrr_tf import command_line
from ibdrr_tf.errors import UserError

__all__ = ["main"]

_LEARNER = ("learn", "classify", "evaluate", "status", "forget")
# Modules whose `main` takes the arguments, and how each goes on when stopped.
_OTHERS = {
  "run": (
    "ibdrr_tf.main",
    "the same command with --workdir and --resume goes on",
  ),
  "compare": ("ibdrr_tf.compare", "the same command goes on"),
  "codec": (
    "ibdrr_tf.codec.__main__",
    "the same command goes on, or starts again",
  ),
  "bench": ("ibdrr_tf.bench.__main__", "the same command starts again"),
}


def main() -> None:
  """The console script."""
  command = sys.argv[1] if len(sys.argv) > 1 else ""
  rest = [f"{sys.argv[0]} {command}", *sys.argv[2:]]
  if command in _OTHERS:
    module, go_on = _OTHERS[command]
    command_line.run(
      lambda _: importlib.import_module(module).main(rest), go_on
    )
    return

  def dispatch(_: list[str]) -> None:
    if command in _LEARNER:
      from ibdrr_tf import learner_commands

      learner_commands.COMMANDS[command](rest)
    elif command.lstrip("-") in ("help", "h", ""):
      print(__doc__)
    else:
      raise UserError(
        f"there is no command {command!r}: give "
        f"{', '.join((*_LEARNER, *_OTHERS))}; ibdrr --help explains them."
      )

  command_line.run(dispatch, "the same command goes on")


if __name__ == "__main__":
  main()
