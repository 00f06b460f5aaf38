"""The codec as a command, on image files, folders and .npy arrays.

    python -m ibdrr_tf.codec compress IN -o OUT.ibdrr
    python -m ibdrr_tf.codec decompress OUT.ibdrr -o DIR|X.npy
    python -m ibdrr_tf.codec decompress OUT.ibdrr --codes -o X.npz
    python -m ibdrr_tf.codec info OUT.ibdrr [IN]
    python -m ibdrr_tf.codec export -o DIR
    python -m ibdrr_tf.codec train [IN] -o DIR [--config=FILE] [run flags]

IN is an image file, a folder of JPEG, PNG and WebP files of any sizes, or a
.npy array, uint8 [n, height, width, 3]. "-" is standard input or output.

`compress` writes one archive; `decompress` gives PNG files, an array, or the
codes; `info` says what an archive holds and costs and, given the originals, its
PSNR; `export` writes a SavedModel that needs no Python of this package. All of
them take --codec=NAME|DIR: a codec of the package, or a folder that `train` has
filled.

`train` trains both stages on IN, or on the base classes of the config's data
set, and leaves the stored models, pictures and TensorBoard logs in DIR.
Interrupted, the same command goes on after the last finished epoch.
`train --help` lists its flags.
"""

import os

# See ibdrr_tf/main.py.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import flags

from ibdrr_tf import command_line
from ibdrr_tf.codec import commands, pretrained
from ibdrr_tf.errors import UserError

__all__ = ["main"]

_COMMANDS = ("train", "compress", "decompress", "info", "export")


def main(argv: list[str]) -> None:
  """Runs the command that the first argument names."""
  command = argv[1] if len(argv) > 1 else ""
  values = flags.FlagValues()
  flags.DEFINE_string(
    "output", None, "where to write", short_name="o", flag_values=values
  )
  if command == "train":
    _train(values, argv)
    return
  _define_flags(values)
  if command_line.print_help(__doc__, values, argv, config=False):
    return
  if command not in _COMMANDS:
    raise UserError(
      f"the codec has no command {command!r}: give {', '.join(_COMMANDS)}."
    )
  rest = command_line.parse_flags(values, argv)[1:]
  if command == "export":
    command_line.refuse_arguments(rest)
    commands.export(_output(values, "DIR"), values.codec, values.force)
  elif command == "info":
    source = _source(rest, "an archive", most=2)
    originals = rest[1] if rest[1:] else ""
    commands.info(source, originals, values.codec, values.max_pixels)
  elif command == "compress":
    source = _source(rest, "images")
    output = _output(values, "OUT.ibdrr")
    commands.compress(
      source, output, values.codec, values.force, values.skip_broken
    )
  else:
    source = _source(rest, "an archive")
    output = _output(values, "X.npz" if values.codes else "DIR or -o X.npy")
    commands.decompress(
      source,
      output,
      values.codec,
      values.force,
      values.codes,
      values.max_pixels,
    )


def _train(values: flags.FlagValues, argv: list[str]) -> None:
  command_line.define_run_flags(values)
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv)
  command_line.refuse_arguments(rest[2:])
  output = _output(values, "DIR")
  from ibdrr_tf.codec_training import command

  command.train(config, rest[1] if rest[1:] else "", output)


def _define_flags(values: flags.FlagValues) -> None:
  flags.DEFINE_string(
    "codec",
    pretrained.DEFAULT,
    f"{', '.join(pretrained.names())}, or the folder of a codec",
    flag_values=values,
  )
  flags.DEFINE_boolean(
    "force", False, "replace what is already there", flag_values=values
  )
  flags.DEFINE_boolean(
    "codes", False, "decompress to codes, not to images", flag_values=values
  )
  flags.DEFINE_boolean(
    "skip_broken",
    False,
    "leave out, and list, files of a folder that cannot be decoded",
    flag_values=values,
  )
  flags.DEFINE_integer(
    "max_pixels",
    None,
    "most pixels that the images of one chain may have together, unless it has "
    "at least a bit for each code; 33554432 by default",
    lower_bound=64,
    flag_values=values,
  )


def _source(arguments: list[str], what: str, most: int = 1) -> str:
  if not arguments:
    raise UserError(f"there is nothing to read: give {what}, or - for a pipe.")
  command_line.refuse_arguments(arguments[most:])
  return arguments[0]


def _output(values: flags.FlagValues, form: str) -> str:
  if not values.output:
    raise UserError(f"there is nowhere to write to: give -o {form}.")
  return values.output


if __name__ == "__main__":
  command_line.run(main, "the same command goes on, or starts again")
