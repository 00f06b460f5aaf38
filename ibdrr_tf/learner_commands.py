"""The commands of a learner: learn, classify, evaluate, status, forget.

TensorFlow takes seconds to import. Each command meets mistakes in its arguments
first, and `status` needs no TensorFlow at all.
"""

import inspect
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import ml_collections
from absl import flags

from ibdrr_tf import (
  choices,
  command_line,
  files,
  learner_report,
  memory_choice,
)
from ibdrr_tf.errors import UserError
from ibdrr_tf.state import State, read_state
from ibdrr_tf.state_config import config_of
from ibdrr_tf.validation import validate

__all__ = ["COMMANDS"]

_BATCH = 256
# In a page: classes, and images of each.
_SHOWN_CLASSES, _SHOWN_IMAGES = 60, 3


def learn(argv: list[str]) -> None:
  """Learns a folder of classes.

      ibdrr learn DIR --state=STATE [--val=DIR2] [--memory_bytes=N]
        [--method=NAME] [--codec=NAME|DIR] [--config.any.field=value]
      ibdrr learn --retrain --state=STATE

  DIR holds a folder of JPEG, PNG or WebP files for each class, or train/ and
  val/ with such folders. Classes may be new, known, or both; old images may be
  gone. Without validation images, a tenth of the new images is set aside to
  test with. The same command goes on after an interruption.
  """
  values = _flags()
  text = {
    "val": "folder of validation images, of the same classes as DIR",
    "method": "how to learn; set by the first step (default: sheet_replay, or "
    "drr where that is better for --memory_bytes and --expected_images)",
    "codec": "for methods that keep codes, in the first step: a name that "
    'comes with the package, a folder, or "" to train one (default auto)',
    "distribute": f"devices: {', '.join(choices.STRATEGIES)}",
    "plugin": "Python file that registers methods or backbones of one's own",
  }
  for name, help_text in text.items():
    flags.DEFINE_string(name, None, help_text, flag_values=values)
  numbers = {
    "memory_bytes": "byte budget of images and codec after every step",
    "expected_images": "about how many images will come in all: with a byte "
    "budget, a new state chooses sheets or bit-strings by it",
    "image_size": "height and width of all images; set by the first step",
    "seed": "of weights and batches",
    "cpu_devices": "logical CPU devices, to try mirrored without a GPU",
  }
  for name, help_text in numbers.items():
    flags.DEFINE_integer(name, None, help_text, flag_values=values)
  flags.DEFINE_boolean(
    "skip_broken",
    None,
    "leave out image files that cannot be decoded, and list them",
    flag_values=values,
  )
  flags.DEFINE_boolean(
    "retrain", False, "train again on what is remembered", flag_values=values
  )
  if command_line.print_help(inspect.getdoc(learn), values, argv):
    return
  config, rest = command_line.parse_config(
    values, argv, lambda: _base_config(argv)
  )
  folder = _one(rest, "a folder of classes", optional=values.retrain)
  if values.retrain and folder:
    raise UserError(
      f"--retrain takes no new images, but {folder} is given: leave one out."
    )
  state = _state_folder(values)
  for name, value in (
    ("memory_bytes", values.memory_bytes),
    ("image_size", values.image_size),
    ("expected_images", values.expected_images),
  ):
    if value is not None and value < 0:
      raise UserError(f"--{name}={value} is negative: give 0 or more.")
  if values.memory_bytes is not None:
    config.memory.total_bytes = values.memory_bytes
  if values.expected_images is not None:
    config.memory.expected_images = values.expected_images
  if values.image_size is not None:
    config.data.image_size = values.image_size
  if values.skip_broken is not None:
    config.data.skip_broken = values.skip_broken
  for path in filter(None, (folder, values.val)):
    _check_folder(path)
  command_line.load_plugin(values.plugin)
  if config.method != memory_choice.AUTO:
    choices.check_method_name(config.method)
  choices.check_devices(config.distribute, config.cpu_devices)
  validate(config)
  command_line.say_starting()
  from ibdrr_tf import distribution
  from ibdrr_tf.data.image_files import BrokenImages
  from ibdrr_tf.learner import Learner

  strategy = distribution.make_strategy(config.distribute, config.cpu_devices)
  team = distribution.Team(strategy)
  learner = Learner(state, config=config, strategy=strategy)
  if learner.choice:
    team.say(f"memory: {learner.choice}")
  before = learner.step
  if values.retrain:
    record = learner.retrain()
  else:
    try:
      record = learner.learn(folder, values.val)
    except BrokenImages as error:
      raise UserError(f"{error} --skip_broken leaves them out.") from error
  if learner.step == before:
    done = "has learned this data already"
    if values.retrain:
      done = "was interrupted at its very end and is finished now"
    team.say(f"step {record['step']} {done}.")
  team.say(learner_report.step(read_state(state), record, state))
  for warning in learner_report.warnings(read_state(state)):
    if team.is_chief:
      print(f"ibdrr_tf: warning: {warning}", file=sys.stderr)


def classify(argv: list[str]) -> None:
  """Names the classes of images.

      ibdrr classify IMAGE… --state=STATE [--json] [--top=N]

  An IMAGE is an image file, a folder of them, a .npy array, or "-" for standard
  input. Images of any size are brought to the state's.
  """
  values = _flags()
  flags.DEFINE_boolean(
    "json", False, "print JSON, with all probabilities", flag_values=values
  )
  flags.DEFINE_integer("top", 1, "classes to print", flag_values=values)
  flags.DEFINE_string("plugin", None, "see ibdrr learn", flag_values=values)
  if command_line.print_help(
    inspect.getdoc(classify), values, argv, config=False
  ):
    return
  rest = command_line.parse_flags(values, argv)
  if not rest:
    raise UserError("no image is given: ibdrr classify IMAGE --state=STATE.")
  state = _existing_state(values)
  from ibdrr_tf.data.images import open_images

  piles = [open_images(path, sys.stdin.buffer) for path in rest]
  command_line.load_plugin(values.plugin)
  command_line.say_starting(result_on_stdout=True)
  from ibdrr_tf.learner import Learner

  learner = Learner(state)
  results = []
  for path, pile in zip(rest, piles, strict=True):
    names = pile.names or [f"{path}[{k}]" for k in range(len(pile.sizes))]
    is_folder = pathlib.Path(path).is_dir()
    for start in range(0, len(names), _BATCH):
      part = range(start, min(start + _BATCH, len(names)))
      images = [pile.read(number) for number in part]
      scores = learner.predict(images).probabilities
      for number, row in zip(part, scores, strict=True):
        name = f"{path}/{names[number]}" if is_folder else names[number]
        if pile.names and not is_folder:
          name = path
        results.append((name, row))
  if values.json:
    print(json.dumps(_as_json(results, learner.classes), indent=2))
    return
  for name, row in results:
    order = row.argsort()[::-1][: max(values.top, 1)]
    best = ", ".join(
      f"{learner.classes[k]} {100 * row[k]:.1f} %" for k in order
    )
    print(f"{name}: {best}")


def _as_json(results: list, classes: tuple[str, ...]) -> list[dict[str, Any]]:
  return [
    {
      "image": name,
      "class": classes[int(row.argmax())],
      "probability": float(row.max()),
      "probabilities": {
        label: float(value) for label, value in zip(classes, row, strict=True)
      },
    }
    for name, row in results
  ]


def evaluate(argv: list[str]) -> None:
  """Accuracy on labelled images, by class.

  ibdrr evaluate DIR --state=STATE [--json]

  DIR holds a folder of images for each class.
  """
  values = _flags()
  flags.DEFINE_boolean("json", False, "print JSON", flag_values=values)
  flags.DEFINE_string("plugin", None, "see ibdrr learn", flag_values=values)
  if command_line.print_help(
    inspect.getdoc(evaluate), values, argv, config=False
  ):
    return
  rest = command_line.parse_flags(values, argv)
  folder = _one(rest, "a folder of classes")
  _check_folder(folder)
  state = _existing_state(values)
  command_line.load_plugin(values.plugin)
  command_line.say_starting(result_on_stdout=True)
  from ibdrr_tf.learner import Learner

  result = Learner(state).evaluate(folder)
  if values.json:
    print(json.dumps(result, indent=2))
  else:
    print(learner_report.evaluation(result))


def status(argv: list[str]) -> None:
  """Shows what a state knows: classes, images, bytes and history.

      ibdrr status --state=STATE [--json] [--html=FILE]

  FILE is a page with curves, bytes, confusions, and images as memory gives them
  back. Remove it when a class is to be forgotten: it may show its images.
  """
  values = _flags()
  flags.DEFINE_boolean("json", False, "print JSON", flag_values=values)
  flags.DEFINE_string("html", None, "page to write", flag_values=values)
  flags.DEFINE_string("plugin", None, "see ibdrr learn", flag_values=values)
  if command_line.print_help(
    inspect.getdoc(status), values, argv, config=False
  ):
    return
  command_line.refuse_arguments(command_line.parse_flags(values, argv))
  folder = _existing_state(values)
  state = read_state(folder)
  if values.html:
    command_line.load_plugin(values.plugin)
    _write_page(folder, state, pathlib.Path(values.html))
  if values.json:
    print(json.dumps(learner_report.as_json(state), indent=2))
  else:
    print(learner_report.status(state, folder))


def _write_page(folder: pathlib.Path, state: State, path: pathlib.Path) -> None:
  """Writes what a state knows as an HTML file."""
  files.check_writable(path)
  command_line.say_starting(result_on_stdout=True)
  from ibdrr_tf.evaluation.run_page import state_page
  from ibdrr_tf.learner import Learner

  learner = Learner(folder)
  tests = learner.memory.held_out() if state.classes else None
  shown = range(min(len(state.classes), _SHOWN_CLASSES))
  page = state_page(
    learner_report.as_json(state),
    labels=None if tests is None else tests.labels,
    predicted=None if tests is None else learner.scores(tests).argmax(axis=1),
    recalled=learner.memory.sample(shown, _SHOWN_IMAGES),
  )
  files.write_text(path, page)


def forget(argv: list[str]) -> None:
  """Takes a class out of memory and of the network's head.

  ibdrr forget CLASS --state=STATE
  """
  values = _flags()
  flags.DEFINE_string("plugin", None, "see ibdrr learn", flag_values=values)
  if command_line.print_help(
    inspect.getdoc(forget), values, argv, config=False
  ):
    return
  rest = command_line.parse_flags(values, argv)
  name, folder = _one(rest, "a class"), _existing_state(values)
  state = read_state(folder)
  # Repeating a command that was killed after its commit finishes it.
  if name not in (*state.classes, state.just_forgotten):
    raise UserError(
      f"there is no class {name!r}: the state {folder} knows "
      f"{', '.join(state.classes) or 'none'}."
    )
  command_line.load_plugin(values.plugin)
  command_line.say_starting(result_on_stdout=True)
  from ibdrr_tf.learner import Learner

  Learner(folder).forget(name)
  print(
    f"{name} is forgotten. The network was not trained again: "
    f"`ibdrr learn --retrain --state={folder}` does that."
  )


COMMANDS: dict[str, Callable[[list[str]], None]] = {
  "learn": learn,
  "classify": classify,
  "evaluate": evaluate,
  "status": status,
  "forget": forget,
}


def _flags() -> flags.FlagValues:
  values = flags.FlagValues()
  flags.DEFINE_string(
    "state", None, "folder of the learner", flag_values=values
  )
  return values


def _one(rest: list[str], what: str, optional: bool = False) -> str | None:
  if optional and not rest:
    return None
  if not rest:
    raise UserError(f"{what} is missing: give one before the flags.")
  command_line.refuse_arguments(rest[1:])
  return rest[0]


def _check_folder(path: str) -> None:
  if not pathlib.Path(path).is_dir():
    raise UserError(
      f"there is no folder {path}: give one that holds a folder for each class."
    )


def _state_folder(values: flags.FlagValues) -> pathlib.Path:
  if not values.state:
    raise UserError("--state is missing: give the folder of the learner.")
  return pathlib.Path(values.state)


def _existing_state(values: flags.FlagValues) -> pathlib.Path:
  folder = _state_folder(values)
  if read_state(folder) is None:
    raise UserError(
      f"there is no state in {folder}: make one with `ibdrr learn DIR "
      f"--state={folder}`."
    )
  return folder


def _base_config(argv: list[str]) -> ml_collections.ConfigDict:
  """The configuration of the state that `--state` names, or of a new one."""
  folder = None
  for number, argument in enumerate(argv):
    name, equals, value = argument.partition("=")
    if name in ("--state", "-state"):
      folder = value if equals else "".join(argv[number + 1 : number + 2])
  return config_of(read_state(pathlib.Path(folder)) if folder else None)
