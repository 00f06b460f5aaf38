"""The codec as a command, on image files, folders and .npy arrays.

    python -m ibdrr_tf.codec compress IN -o OUT.ibdrr
    python -m ibdrr_tf.codec decompress OUT.ibdrr -o DIR|X.npy|X.png
    python -m ibdrr_tf.codec decompress OUT.ibdrr --codes -o X.npz
    python -m ibdrr_tf.codec info OUT.ibdrr [IN]
    python -m ibdrr_tf.codec export -o DIR
    python -m ibdrr_tf.codec train [IN] -o DIR [--config=FILE] [run flags]

IN is an image file, a folder of JPEG, PNG and WebP files of any sizes, or a
.npy array, uint8 [n, height, width, 3]. "-" is standard input or output. All
take --codec=NAME|DIR: a codec of the package, or a folder that `train` has
filled. `python -m ibdrr_tf.codec COMMAND --help` says more of each.
"""

import os

# See ibdrr_tf/main.py.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import flags

from ibdrr_tf import choices, command_line
from ibdrr_tf.codec import commands, pretrained
from ibdrr_tf.data.images import open_images
from ibdrr_tf.errors import UserError
from ibdrr_tf.validation import validate

__all__ = ["main"]

_NAME = "python -m ibdrr_tf.codec"
_USAGE = {
  "train": f"""Trains both stages of a codec.

    {_NAME} train [IN] -o DIR [--config=FILE] [run flags]

IN is a folder of images or a .npy array; without it, the base classes of the
config's data set are taken. DIR gets the stored models, pictures and
TensorBoard logs. Interrupted, the same command goes on after the last finished
epoch.
""",
  "compress": f"""Compresses images to one archive, and says what it costs.

    {_NAME} compress IN -o OUT.ibdrr

IN is an image file, a folder of JPEG, PNG and WebP files of any sizes, a .npy
array, uint8 [n, height, width, 3], or "-". Files of a folder that are skipped
are listed. With --check the archive is decoded again, and its PSNR told.
""",
  "decompress": f"""Makes images, or codes, of an archive.

    {_NAME} decompress OUT.ibdrr -o DIR|X.npy|X.png
    {_NAME} decompress OUT.ibdrr --codes -o X.npz

DIR gets a PNG file for each image, X.npy one array, X.png the only image.
""",
  "info": f"""Says what an archive holds and costs; with IN, its PSNR.

    {_NAME} info OUT.ibdrr [IN]

IN is what was compressed. The PSNR is the mean over images.
""",
  "export": f"""Writes a SavedModel that needs no Python of this package.

    {_NAME} export -o DIR
""",
}


def main(argv: list[str]) -> None:
  """Runs the command that the first argument names."""
  command = argv[1] if len(argv) > 1 else ""
  values = flags.FlagValues()
  if command != "info":
    flags.DEFINE_string(
      "output", None, "where to write", short_name="o", flag_values=values
    )
  if command == "train":
    _train(values, argv)
    return
  _define_flags(values, command)
  usage = _USAGE.get(command, __doc__)
  if command_line.print_help(usage, values, argv, config=False):
    return
  if command not in _USAGE:
    raise UserError(
      f"the codec has no command {command!r}: give {', '.join(_USAGE)}."
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
    commands.compress(
      _source(rest, "images"),
      _output(values, "OUT.ibdrr"),
      values.codec,
      values.force,
      values.skip_broken,
      values.check,
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
  if command_line.print_help(_USAGE["train"], values, argv):
    return
  config, rest = command_line.parse_config(values, argv)
  command_line.refuse_arguments(rest[2:])
  output = _output(values, "DIR")
  choices.check_devices(config.distribute, config.cpu_devices)
  validate(config)
  images = rest[1] if rest[1:] else ""
  if images:
    open_images(images)  # Refuses what it cannot read.
  command_line.say_starting()
  from ibdrr_tf.codec_training import command

  command.train(config, images, output)


def _define_flags(values: flags.FlagValues, command: str) -> None:
  """Flags of a command; all of them where none is named."""
  flags.DEFINE_string(
    "codec",
    pretrained.DEFAULT,
    f"{', '.join(pretrained.names())}, or the folder of a codec",
    flag_values=values,
  )
  switches = {
    "force": (
      ("compress", "decompress", "export"),
      "replace what is already there",
    ),
    "codes": (("decompress",), "decompress to codes, not to images"),
    "check": (("compress",), "decode the archive again, and tell its PSNR"),
    "skip_broken": (
      ("compress",),
      "leave out, and list, files of a folder that cannot be decoded",
    ),
  }
  for name, (where, text) in switches.items():
    if command in where or command not in _USAGE:
      flags.DEFINE_boolean(name, False, text, flag_values=values)
  if command not in ("compress", "export"):
    flags.DEFINE_integer(
      "max_pixels",
      None,
      "most pixels that the images of one chain may have together, unless it "
      "has at least a bit for each code; 33554432 by default",
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
