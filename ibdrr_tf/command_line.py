"""What every command shares: flags, one-sentence errors and exit codes.

TensorFlow takes seconds to import. Nothing here needs it, so commands that find
a mistake among their arguments can say so at once.
"""

import contextlib
import difflib
import errno
import functools
import json
import logging
import os
import pathlib
import runpy
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable

import ml_collections
from absl import flags
from ml_collections import config_flags

from ibdrr_tf import choices
from ibdrr_tf.errors import UserError

__all__ = [
  "define_codec_flag",
  "define_run_flags",
  "load_plugin",
  "next_commands",
  "parse_config",
  "parse_flags",
  "print_help",
  "refuse_arguments",
  "run",
  "say_starting",
]

_USER_ERROR = 2
_WORKER_LOST = 75  # EX_TEMPFAIL of sysexits.h: the same again may well work
_DEFAULTS = pathlib.Path(__file__).with_name("config.py")
# The recipes that come with the package.
_CONFIGS = pathlib.Path(__file__).with_name("configs")
_WRITE_ERRORS = {
  errno.ENOSPC,
  errno.EDQUOT,
  errno.EFBIG,
  errno.EROFS,
  errno.EIO,
}


def run(command: Callable[[list[str]], None], go_on: str) -> None:
  """Runs a command with the program's arguments, then ends the process.

  Exit codes: 0 when all went well, 2 for a mistake of the user's (one sentence
  on standard error), 75 when another worker was lost, 130, 141 and 143 when
  interrupted by Ctrl-C, a closed pipe or SIGTERM.

  Args:
    command: gets the arguments, the program's name first.
    go_on: how to go on after an interruption, e.g. "the same command with
      --resume goes on".
  """
  signal.signal(signal.SIGTERM, functools.partial(_terminate, go_on))
  # Each phase has a new model, so TensorFlow would warn of "retracing".
  logging.getLogger("tensorflow").setLevel("ERROR")
  try:
    command(sys.argv)
    sys.stdout.flush()
  except BrokenPipeError:
    # Whoever read the output, such as `head`, has seen enough.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _leave(128 + signal.SIGPIPE)
  except UserError as error:
    _say(f"error: {error}")
    _leave(_USER_ERROR)
  except UnicodeEncodeError as error:
    if error.reason != "surrogates not allowed":
      raise
    # Names of files that are no UTF-8 are read as such.
    _say(
      f"error: the name {error.object!r} is not UTF-8, as TensorFlow and JSON "
      f"want it: rename the file or folder."
    )
    _leave(_USER_ERROR)
  except KeyboardInterrupt:
    _say(f"interrupted: {go_on}.")
    _leave(128 + signal.SIGINT)
  except Exception as error:
    if _is_lost_worker(error):
      _say(f"error: another worker is gone: start all of them again; {go_on}.")
      _leave(_WORKER_LOST)
    reason = _write_failure(error)
    if reason is None:
      raise
    _say(
      f"error: a file could not be written ({reason}): make room, then "
      f"{go_on}; or write to another folder."
    )
    _leave(_USER_ERROR)


def print_help(
  usage: str,
  flag_values: flags.FlagValues,
  argv: list[str],
  config: bool = True,
) -> bool:
  """Answers --help; absl's own answer would exit with code 1.

  Args:
    usage: what to say before the flags.
    flag_values: with the flags of the command defined.
    argv: all arguments.
    config: whether the command has the flags of a config.

  Returns:
    Whether help was asked for, and so given.
  """
  asked = any(
    argument.lstrip("-").split("=")[0] in ("help", "h", "helpshort", "helpfull")
    for argument in argv[1:]
    if argument.startswith("-")
  )
  if asked:
    if config:
      _define_config(flag_values, argv[:1])
      # Two hundred lines of defaults would bury all other flags.
      flag_values[
        "config"
      ].default_as_str = (
        "the demonstration; ibdrr_tf/config.py lists all fields"
      )
    print(f"{usage}\n{flag_values.get_help()}")
  return asked


def _define_config(
  flag_values: flags.FlagValues,
  argv: list[str],
  default: Callable[[], ml_collections.ConfigDict] | None = None,
) -> list[str]:
  """Loads the file of `--config` and defines `--config.any.field` flags.

  Args:
    flag_values: where to define them.
    argv: all arguments.
    default: gives the config where no file is named; None is the demo's.

  Returns:
    The arguments without `--config=FILE` itself.
  """
  path, argv = _split_config(argv)
  if path == str(_DEFAULTS) and default is not None:
    config = default()
  else:
    config = _load_config(path)
  # Defining them reads argv too, and meets unknown fields first.
  try:
    config_flags.DEFINE_config_dict(
      "config",
      config,
      f"{', '.join(_config_names())}, or a file with get_config(); its fields "
      f"are set by --config.field=value",
      flag_values=flag_values,
      sys_argv=argv,
    )
  except (flags.Error, AttributeError, KeyError, TypeError) as error:
    # At this point the config is no flag yet.
    sentence = _flag_sentence(error, argv, flag_values, config=True)
    raise UserError(sentence) from error
  return argv


def define_run_flags(flag_values: flags.FlagValues) -> None:
  """Flags for what is set most often; where given, they override the config."""
  text = {
    "plugin": "Python file that registers methods or backbones of one's own",
    "dataset": "shapes, folder, or a TensorFlow Datasets name such as cifar100",
    "data_dir": "folder of the data set",
    "distribute": f"devices: {', '.join(choices.STRATEGIES)}",
  }
  for name, help_text in text.items():
    flags.DEFINE_string(name, None, help_text, flag_values=flag_values)
  numbers = {
    "phases": "phases after the base phase",
    "cpu_devices": "logical CPU devices, to try mirrored without a GPU",
    "seed": "of weights, batches and generated data",
  }
  for name, help_text in numbers.items():
    flags.DEFINE_integer(name, None, help_text, flag_values=flag_values)


def define_codec_flag(flag_values: flags.FlagValues) -> None:
  """The codec of a run, for those commands that run experiments."""
  from ibdrr_tf.codec import pretrained

  flags.DEFINE_string(
    "codec",
    None,
    f"whose VQ-VAE to take, and whose Bit-Swap to begin with: "
    f"{', '.join(pretrained.names())}, or a folder; --codec= trains both on "
    f"the base classes, as do most configs; the demonstration takes "
    f"tiny_imagenet",
    flag_values=flag_values,
  )


def parse_config(
  flag_values: flags.FlagValues,
  argv: list[str],
  default: Callable[[], ml_collections.ConfigDict] | None = None,
) -> tuple[ml_collections.ConfigDict, list[str]]:
  """Parses all flags and joins them with the config.

  Args:
    flag_values: with the flags of the command defined.
    argv: all arguments.
    default: gives the config where no file is named; None is the demo's.

  Returns:
    The config with explicit flags set in it, and the arguments that are no
    flags.
  """
  argv = _define_config(flag_values, argv, default)
  rest = parse_flags(flag_values, argv)
  config = flag_values.config
  for name in flag_values:
    if name in config and flag_values[name].value is not None:
      config[name] = flag_values[name].value
  if "phases" in flag_values and flag_values.phases is not None:
    config.scenario.phases = flag_values.phases
  return config, rest


def load_plugin(path: str | None) -> None:
  """Runs a user's own file, which registers methods or backbones."""
  if not path:
    return
  if not pathlib.Path(path).is_file():
    raise UserError(f"there is no plugin {path}: give a Python file.")
  try:
    runpy.run_path(path)
  except UserError:
    raise
  except Exception as error:  # A plugin is code: anything may happen.
    raise UserError(
      f"the plugin {path} failed with {type(error).__name__}: {error}."
    ) from error


def parse_flags(flag_values: flags.FlagValues, argv: list[str]) -> list[str]:
  """Parses all flags; gives the arguments that are none."""
  try:
    return flag_values(argv)[1:]
  except flags.Error as error:
    raise UserError(_flag_sentence(error, argv, flag_values)) from error


def refuse_arguments(arguments: list[str]) -> None:
  """Refuses what is left over once all flags are parsed."""
  if arguments:
    raise UserError(
      f"the argument {arguments[0]!r} is not expected: flags look like "
      f"--name=value; --help lists them."
    )


def say_starting(result_on_stdout: bool = False) -> None:
  """Says that TensorFlow is being started, which takes seconds.

  Args:
    result_on_stdout: whether others may read standard output, as they do that
      of `classify`; then only a user at a terminal is told.
  """
  sentence = "ibdrr_tf: TensorFlow is starting"
  if _is_other_worker():
    return  # The chief speaks for all.
  if not result_on_stdout:
    print(sentence, flush=True)
  elif sys.stderr.isatty():
    print(sentence, file=sys.stderr, flush=True)


def next_commands(workdir: str) -> str:
  """What to look at and to type once a run is finished."""
  folder, page = shlex.quote(workdir), os.path.join(workdir, "report.html")
  lines = [
    f"next  {_program('ibdrr')} classify IMAGE --state={folder}",
    f"      {_program('tensorboard')} --logdir={folder}",
  ]
  if os.path.exists(page):  # Runs of older versions have none.
    lines.insert(0, f"see   {shlex.quote(page)}")
  return "\n".join(lines)


def _program(name: str) -> str:
  """How to start a program of this environment, which may not be active."""
  path = pathlib.Path(sys.executable).parent / name
  if shutil.which(name) or not path.exists():
    return name
  with contextlib.suppress(ValueError):
    path = path.relative_to(pathlib.Path.cwd())
  return shlex.quote(str(path))


def _is_other_worker() -> bool:
  """Whether the environment says that this worker is not the chief."""
  try:
    task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
    return int(task.get("index", 0)) > 0
  except (ValueError, TypeError, AttributeError):
    return False  # TensorFlow will say what is wrong with it.


def _say(sentence: str) -> None:
  print(f"ibdrr_tf: {sentence}", file=sys.stderr)


def _terminate(go_on: str, *_) -> None:
  _say(f"terminated: {go_on}.")
  _leave(128 + signal.SIGTERM)


def _leave(code: int) -> None:
  """Ends the process with an exit code."""
  if "TF_CONFIG" in os.environ:
    # At a regular exit, threads that talk to other workers would go on waiting.
    # Files are written atomically, so there is nothing to clean up.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
  sys.exit(code)


def _is_lost_worker(error: Exception) -> bool:
  """Whether a collective operation failed for want of another worker."""
  names = ("UnavailableError", "DeadlineExceededError", "AbortedError")
  return "TF_CONFIG" in os.environ and type(error).__name__ in names


def _write_failure(error: Exception) -> str | None:
  """The reason why a file could not be written, or None for other errors."""
  if isinstance(error, OSError):
    return str(error) if error.errno in _WRITE_ERRORS else None
  # TensorFlow's own writers turn errno into the text of an OpError.
  for number in _WRITE_ERRORS:
    if os.strerror(number) in getattr(error, "message", ""):
      return os.strerror(number)
  return None


def _split_config(argv: list[str]) -> tuple[str, list[str]]:
  """Takes `--config=FILE` or `--config FILE` out of the arguments."""
  path, rest = str(_DEFAULTS), argv[:1]
  arguments = iter(argv[1:])
  for argument in arguments:
    name, equals, value = argument.partition("=")
    if name in ("--config", "-config"):
      path = value if equals else next(arguments, "")
    else:
      rest.append(argument)
  return path, rest


def _config_names() -> list[str]:
  """The recipes that `--config` knows by name."""
  return sorted(path.stem for path in _CONFIGS.glob("*.py"))


def _find_config(text: str) -> tuple[str, list[str]]:
  """The file and the arguments of NAME, NAME:VARIANT, FILE or FILE:VARIANT."""
  if pathlib.Path(text).is_file():
    return text, []
  path, colon, variant = text.rpartition(":")
  if not colon:
    path, variant = text, ""
  if path in _config_names():
    path = str(_CONFIGS / f"{path}.py")
  if not pathlib.Path(path).is_file():
    raise UserError(
      f"there is no config file {path!r}: give the name of one "
      f"({', '.join(_config_names())}), or a path, or leave it out for the "
      f"demo."
    )
  return path, [variant] if colon else []


def _load_config(text: str) -> ml_collections.ConfigDict:
  """Calls get_config(), or get_config("VARIANT"), of a recipe or a file."""
  path, arguments = _find_config(text)
  try:
    config = runpy.run_path(path)["get_config"](*arguments)
  except UserError:
    raise
  except Exception as error:  # A config file is code: anything may happen.
    raise UserError(
      f"the config file {path} failed with {type(error).__name__}: {error}."
    ) from error
  if not isinstance(config, ml_collections.ConfigDict):
    raise UserError(
      f"get_config() of {path} gives no ConfigDict: start from "
      f"ibdrr_tf.config.get_config()."
    )
  return config


def _flag_sentence(
  error: Exception,
  argv: list[str],
  flag_values: flags.FlagValues,
  config: bool = False,
) -> str:
  """Says which flag is wrong and what it might have been."""
  known = set(flag_values)
  if config or "config" in known:
    from ibdrr_tf import config as defaults

    known |= {f"config.{name}" for name in _fields(defaults.get_config())}
  for argument in argv[1:]:
    name = argument.lstrip("-").split("=", 1)[0]
    plain = name.removeprefix("no") if name.startswith("noconfig.") else name
    if argument.startswith("-") and plain not in known:
      near = difflib.get_close_matches(plain, known, 1)
      hint = f"did you mean --{near[0]}?" if near else "--help lists them."
      return f"there is no flag --{plain}: {hint}"
  return f"{str(error).strip().splitlines()[0].rstrip('.')}; see --help."


def _fields(
  config: ml_collections.ConfigDict, prefix: str = ""
) -> Iterable[str]:
  for name, value in config.items():
    yield prefix + name
    if isinstance(value, ml_collections.ConfigDict):
      yield from _fields(value, f"{prefix}{name}.")
