"""The folder of a learner: `state.json` says what counts.

    state.json    version, configuration, class names in label order, history
    codec/        both stages of the codec, for methods that keep codes
    memory/       what is remembered; see `replay.manifest`
    classifier/   the network of the last step
    checkpoints/  traces of a step in progress

A step writes everything else first and `state.json` last, by one rename. Who is
killed before the rename leaves the state of the step before.
"""

import dataclasses
import hashlib
import json
import pathlib
import shutil
from typing import Any

from ibdrr_tf import files
from ibdrr_tf.errors import UserError

__all__ = [
  "MOST_SIDE",
  "State",
  "claim_traces",
  "is_claimed",
  "read_state",
  "refuse_foreign",
  "remove_traces",
  "write_state",
]

_FILE = "state.json"
_FIRST = "first"  # How the claim of a first step begins.
_CLAIM = pathlib.PurePath("checkpoints", "claim.txt")
_VERSION = 1
# Pixels of a side. More would take gigabytes for a few images.
MOST_SIDE = 1 << 13
# What a benchmark leaves in its folder before the first step.
_BENCHMARK = ("config.json", "tensorboard")


@dataclasses.dataclass(frozen=True)
class State:
  """What a learner knows after a step.

  Attributes:
    step: number of the last step; -1 before the first.
    classes: names of all classes, in label order.
    image_shape: (height, width, 3) of all images.
    config: the configuration, as JSON.
    network: how the network was built: `classes`, `old_classes`, and
      `backbones` of methods that grow; None while there is none.
    steps: what each step did, for people and for the next call.
  """

  step: int
  classes: tuple[str, ...]
  image_shape: tuple[int, int, int]
  config: dict[str, Any]
  network: dict[str, int] | None
  steps: tuple[dict[str, Any], ...]

  @property
  def just_forgotten(self) -> str | None:
    """The class that the last step forgot; None if it did something else."""
    last = self.steps[-1] if self.steps else {}
    return last.get("class") if last.get("kind") == "forget" else None


def read_state(folder: pathlib.Path) -> State | None:
  """The committed state of a folder; None if there is none.

  Raises:
    UserError: if the file is damaged or of a newer version.
  """
  path = folder / _FILE
  if not path.exists():
    return None
  remedy = "restore it from a copy, or start again in another folder"
  try:
    if not path.is_file():
      raise ValueError("a pipe, or a folder")
    body = json.loads(path.read_text(encoding="utf-8"))
    if body["version"] > _VERSION:
      raise UserError(
        f"{path} was written by a newer version of ibdrr_tf: use that version."
      )
    if body.pop("checksum") != _checksum(body):
      raise ValueError("checksum")
    del body["version"]
    for name in ("classes", "image_shape", "steps"):
      body[name] = tuple(body[name])
    return _checked(State(**body))
  except (
    *(OSError, ValueError, KeyError, TypeError, AttributeError),
    RecursionError,
  ) as error:
    raise UserError(f"{path} is damaged: {remedy}.") from error


def _checked(state: State) -> State:
  """Raises ValueError if a field has another type than it should have."""
  numbers = [state.step, *state.image_shape, *(state.network or {}).values()]
  if (
    any(type(number) is not int for number in numbers)
    or state.step < -1
    or len(state.image_shape) != 3
    or min(state.image_shape) < 1
    or max(state.image_shape) > MOST_SIDE
    or not all(isinstance(name, str) for name in state.classes)
    or len(set(state.classes)) != len(state.classes)
    or not all(isinstance(step, dict) for step in state.steps)
    or not isinstance(state.config, dict)
    or not (state.network is None or _is_network(state))
  ):
    raise ValueError("a field has another type")
  return state


def _is_network(state: State) -> bool:
  """Whether a network has an output for each class, some of them older.

  A network that grows has gained at most one backbone in each step.
  """
  network, classes = state.network, len(state.classes)
  return (
    set(network) - {"backbones"} == {"classes", "old_classes"}
    and network["classes"] == classes
    and 0 <= network["old_classes"] <= classes
    and 1 <= network.get("backbones", 1) <= state.step + 1
  )


def write_state(folder: pathlib.Path, state: State) -> None:
  """Commits a state: from here on it is the one that counts."""
  body = {"version": _VERSION, **dataclasses.asdict(state)}
  body = json.loads(json.dumps(body))
  body["checksum"] = _checksum(body)
  files.write_json(folder / _FILE, body)


def _checksum(body: dict[str, Any]) -> str:
  text = json.dumps(body, sort_keys=True, separators=(",", ":"))
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def claim_traces(folder: pathlib.Path, claim: str, *, is_new: bool) -> None:
  """Marks the traces of a step; removes those of another attempt.

  Args:
    folder: of the state.
    claim: tells the step: its data and its configuration.
    is_new: whether no step has been committed yet. Then codec and memory are
      traces too.
  """
  files.remove_leftovers(folder)
  if is_claimed(folder, claim, is_new=is_new):
    return
  path = folder / _CLAIM
  leftovers = [entry for entry in path.parent.glob("*") if entry != path]
  if is_new:
    names = ("memory", "codec", "features", "classifier")
    leftovers += [folder / name for name in names]
  for leftover in leftovers:
    shutil.rmtree(leftover, ignore_errors=True)
  files.write_text(path, _claim_text(claim, is_new))


def is_claimed(
  folder: pathlib.Path, claim: str, *, is_new: bool = False
) -> bool:
  """Whether the traces of a step are there: it has begun and not ended."""
  return _read_claim(folder) == _claim_text(claim, is_new).encode()


def _claim_text(claim: str, is_new: bool) -> str:
  digest = hashlib.sha256(claim.encode()).hexdigest()
  return f"{_FIRST} {digest}" if is_new else digest


def _read_claim(folder: pathlib.Path) -> bytes | None:
  path = folder / _CLAIM
  return path.read_bytes() if path.is_file() else None


def remove_traces(folder: pathlib.Path, *, pictures: bool) -> None:
  """Removes what a step in progress needs; its claim goes last.

  Args:
    folder: of the state.
    pictures: whether to remove pictures of the codec's training and a
      benchmark's page as well, which may show images of a class that is to be
      forgotten.
  """
  if pictures:
    for name in ("reconstructions.png", "report.html"):
      (folder / name).unlink(missing_ok=True)
    shown = folder / "tensorboard" / "vqvae" / "pictures"
    shutil.rmtree(shown, ignore_errors=True)
  claim = folder / _CLAIM
  for entry in list(claim.parent.glob("*")):
    if entry != claim:
      shutil.rmtree(entry, ignore_errors=True)
  shutil.rmtree(claim.parent, ignore_errors=True)


def refuse_foreign(folder: pathlib.Path) -> None:
  """Refuses a folder of other files, in which no first step has begun.

  Whoever has lost `state.json` still has a memory, which a first step would
  remove.
  """
  if not folder.is_dir() or (folder / _FILE).exists():
    return
  if (_read_claim(folder) or b"").startswith(_FIRST.encode()):
    return
  foreign = [
    entry.name
    for entry in folder.iterdir()
    if not entry.name.startswith(".")
    and entry.name not in _BENCHMARK
    and not _is_bare(entry)
  ]
  if foreign:
    raise UserError(
      f"the folder {folder} holds no state but other files, such as "
      f"{min(foreign)!r}: choose a new or empty folder."
    )


def _is_bare(entry: pathlib.Path) -> bool:
  """Whether this is all that a process, killed at its start, has left."""
  return entry.name == "checkpoints" and all(
    inner.name.startswith(".") for inner in entry.iterdir()
  )
