r"""Measurements, each beside its rival in the same run.

    python -m ibdrr_tf.bench codec --data_dir=DATA [--codec=NAME|DIR[,…]]

`codec` prints what the codes of the training images cost in every lossless form
(plain packing, xz, zstd, histograms, constriction, Bit-Swap) and how fast each
is coded and decoded; then how seconds, bytes and peak memory grow with the
number of images and with their size, for which `--photographs=DIR` gives large
ones.

    python -m ibdrr_tf.bench replay [--codec=NAME|DIR]
    python -m ibdrr_tf.bench train [--config=…]
    python -m ibdrr_tf.bench memory --data_dir=DATA [--codec=NAME|DIR[,…]]
    python -m ibdrr_tf.bench stream [--codec=NAME|DIR[,…]]

`replay` times training steps that are fed from bit-strings against steps that
are fed from raw images in RAM. `train` gives images a second of each stage of
training, with one replica and with two (two logical CPU devices, or all GPUs);
with `--distribute` it measures these devices alone. `memory` prints the byte
ledger of CIFAR-100's 50,000 training images, models included, beside the
paper's; and bytes against quality beside WebP and JPEG. `stream` writes a
memory of 300,000 images and gives the images a second and the peak memory of an
epoch of batches that is read from the disk, beside the same codes in RAM.

    python -m ibdrr_tf.bench precision

`precision` gives images a second of a training in float32 and in bfloat16, for
networks of several widths; on GPUs also in float16.

    python -m ibdrr_tf.bench drift [--config=…] [--codec=NAME|DIR]

`drift` takes three memories through the phases of a config: those of `aqm` and
of `scalable_recollections`, whose networks go on learning, and the frozen
codec. After each phase it decodes the images of all earlier ones and compares
them with the originals.

`--quick` makes these seven measure less; `codec` and `memory` then need no
data: they take generated images where there is no CIFAR-100. `--json=FILE`
keeps the figures.

    python -m ibdrr_tf.bench accuracy --json=FILE --data_dir=DATA \
      [--images=10000,50000] [--budgets=60,80,100,150] [--seeds=3]

`accuracy` keeps 20 classes of CIFAR-100 in each form (AVIF and WebP contact
sheets, WebP files, codes) at equal bytes an image, models included, trains a
classifier on what comes back and tests it on raw images: five minutes each on
one core. The same command goes on where it was interrupted. With `--steps=10`
the classes arrive in ten steps, and memory holds the budget after each of them,
without knowing how many will come.

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
"""

import os

# See ibdrr_tf/main.py.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import flags

from ibdrr_tf import choices, command_line, files
from ibdrr_tf.bench.options import KINDS, Options
from ibdrr_tf.codec import pretrained
from ibdrr_tf.errors import UserError
from ibdrr_tf.validation import validate

__all__ = ["main"]


def main(argv: list[str]) -> None:
  """Runs the measurement that the first argument names."""
  values = flags.FlagValues()
  command_line.define_run_flags(values)
  for name, text in {
    "codec": f"codecs, separated by commas: {', '.join(pretrained.names())}, "
    "or folders",
    "photographs": "a folder of image files of any size",
    "picture": "where to draw reconstructions at 32, 64 and 224 pixels",
    "classify": "a folder for the checkpoints of classifiers to train",
    "json": "where to write the figures as JSON",
    "images": "of accuracy: how many images models are divided by",
    "budgets": "of accuracy: bytes an image, models included",
    "forms": "of accuracy: forms to measure, separated by commas; all if empty",
  }.items():
    flags.DEFINE_string(name, "", text, flag_values=values)
  for name, text in {
    "quick": "measure less, in a minute or two: codec, replay, train, "
    "precision, memory, stream, drift",
    "sizes": "also try sizes of chains and groups",
  }.items():
    flags.DEFINE_boolean(name, False, text, flag_values=values)
  for name, default, least, text in (
    ("seeds", 3, 0, "of accuracy: how many; 0 gives bytes and PSNR alone"),
    ("steps", 1, 1, "of accuracy: in how many steps the images arrive"),
  ):
    flags.DEFINE_integer(
      name, default, text, lower_bound=least, flag_values=values
    )
  if command_line.print_help(__doc__, values, argv):
    return
  config, rest = command_line.parse_config(values, argv)
  # Here --codec is a list of folders, and no part of what a run is.
  config.codec = ""
  if not rest or rest[0] not in KINDS:
    raise UserError(
      f"there is no measurement {rest[0] if rest else ''!r}: give "
      f"{', '.join(KINDS)}."
    )
  command_line.refuse_arguments(rest[1:])
  validate(config)
  choices.check_method_name(config.method)
  choices.check_devices(config.distribute, config.cpu_devices)
  if values.picture and not values.photographs:
    raise UserError("--picture needs image files: give --photographs=DIR.")
  # Minutes of measuring must not end with a file that cannot be written.
  for path in filter(None, (values.json, values.picture)):
    files.check_writable(path)
  options = Options(
    arguments=tuple(argv[1:]),
    codecs=tuple(name for name in values.codec.split(",") if name),
    dataset=values.dataset or "",
    photographs=values.photographs,
    picture=values.picture,
    classify=values.classify,
    quick=values.quick,
    sizes=values.sizes,
    images=_numbers("images", values.images or "10000,50000"),
    budgets=_numbers("budgets", values.budgets or "60,80,100,150"),
    seeds=values.seeds,
    forms=tuple(name.strip() for name in values.forms.split(",") if name),
    steps=values.steps,
    json=values.json,
  )
  options.folders((), needed=())  # Which files a kind needs, it says itself.
  command_line.say_starting()
  from ibdrr_tf.bench import kinds
  from ibdrr_tf.methods import check_method

  check_method(config)
  measured = kinds.KINDS[rest[0]](config, options)
  if values.json:
    files.write_json(values.json, measured)


def _numbers(name: str, text: str) -> tuple[int, ...]:
  """The whole numbers of a flag, separated by commas."""
  try:
    numbers = tuple(int(part) for part in text.split(","))
  except ValueError:
    numbers = (0,)
  if min(numbers) < 1:
    raise UserError(
      f"--{name}={text} is not a list of whole numbers: give, for example, "
      f"60,100."
    )
  return numbers


if __name__ == "__main__":
  command_line.run(main, "the same command starts again")
