"""The folder of one run: claimed by its configuration, never overwritten."""

import datetime
import json
import pathlib
import re
from typing import Any

import ml_collections

from ibdrr_tf import files
from ibdrr_tf.config import CIRCUMSTANCES
from ibdrr_tf.distribution import ALONE, Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.lock import Lock

__all__ = ["Workdir", "default_path", "open_workdir"]


class Workdir:
  """A claimed folder.

  Attributes:
    path: the folder.
    results: contents of its results.json, None before the base phase is done.
  """

  def __init__(self, path: pathlib.Path):
    self.path = path
    self.results = _read_json(path / "results.json")
    if self.results is not None and not _are_results(self.results):
      raise _damaged(path / "results.json")

  def is_finished(self, phases: int) -> bool:
    """Whether all of so many phases, the base phase included, are done."""
    return self.results is not None and len(self.results["phases"]) == phases


def default_path(config: ml_collections.ConfigDict, resume: bool) -> str:
  """`runs/<dataset>-<method>-<time>`, or the newest such run to resume."""
  name = re.sub(r"[^\w.-]+", "_", f"{config.dataset}-{config.method}")
  root = pathlib.Path("runs")
  if resume:
    for path in sorted(root.glob(f"{name}-*"), reverse=True):
      claim = _read_json(path / "config.json") or {}
      if isinstance(claim, dict):
        claim.pop("data_fingerprint", None)
      if claim == _identity(config):
        return str(path)
  time = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
  path = root / f"{name}-{time}"
  number = 1
  while path.exists():
    number += 1
    path = root / f"{name}-{time}-{number}"
  return str(path)


def open_workdir(
  path: str,
  config: ml_collections.ConfigDict,
  *,
  resume: bool,
  data: str,
  team: Team = ALONE,
) -> Workdir:
  """Claims a folder for a run, or refuses it in one sentence.

  Args:
    path: the folder; made if it is not there.
    config: the run's configuration.
    resume: whether to go on with what is there; a folder with nothing in it is
      claimed all the same.
    data: the data set's fingerprint; its files may lie elsewhere next time,
      but not be others.
    team: the workers of the run, of which the chief claims the folder that it
      was told (default names hold the time, which is another for each), and
      all the others take that one.
  """

  # Times in default names differ between workers.
  def claim() -> str:
    _claim(path, config, resume, data)
    return path

  return Workdir(pathlib.Path(team.ask_chief(claim)))


def _claim(
  path: str, config: ml_collections.ConfigDict, resume: bool, data: str
) -> None:
  """Makes a folder that of a run; see `open_workdir`."""
  folder = pathlib.Path(path)
  wanted = {**_identity(config), "data_fingerprint": data}
  try:
    folder.mkdir(parents=True, exist_ok=True)
    claim = _read_json(folder / "config.json")
    if claim is None:
      # Hidden files are leftovers of a run that was killed as it began.
      foreign = [p.name for p in folder.iterdir() if p.name[0] != "."]
      if foreign:
        raise UserError(
          f"the workdir {path} holds no run but other files, such as "
          f"{min(foreign)!r}: choose a new or empty --workdir."
        )
      files.write_json(folder / "config.json", wanted)
      return
  except OSError as error:
    raise UserError(
      f"the workdir {path} cannot be written ({error.strerror}): choose "
      f"another --workdir."
    ) from error
  differing = _differing(claim, wanted)
  if differing:
    raise UserError(
      f"the workdir {path} holds a run of another configuration (it differs in "
      f"{', '.join(differing)}): choose another --workdir."
    )
  if not resume:
    raise UserError(
      f"the workdir {path} already holds this run: go on with --resume, or "
      f"choose another --workdir."
    )
  # Another process may be writing these files at this moment.
  with Lock(folder):
    files.remove_leftovers(folder)


def _identity(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """What makes two runs the same, as JSON gives it back."""
  fields = {
    name: value
    for name, value in config.to_dict().items()
    if name not in CIRCUMSTANCES
  }
  return json.loads(json.dumps(fields))


def _differing(old: Any, new: Any, prefix: str = "config") -> list[str]:
  if not (isinstance(old, dict) and isinstance(new, dict)):
    return [] if old == new else [prefix]
  names = []
  for name in sorted(old.keys() | new.keys()):
    names += _differing(old.get(name), new.get(name), f"{prefix}.{name}")
  return names


def _read_json(path: pathlib.Path) -> Any:
  if not path.exists():
    return None
  try:
    return json.loads(path.read_text(encoding="utf-8"))
  except (OSError, ValueError, RecursionError) as error:
    raise _damaged(path) from error


def _are_results(results: Any) -> bool:
  """Whether a run can go on from these, as far as can be told at once."""
  try:
    return all(
      isinstance(phase["phase"], int) and isinstance(phase["memory"], dict)
      for phase in results["phases"]
    )
  except (KeyError, TypeError):
    return False


def _damaged(path: pathlib.Path) -> UserError:
  return UserError(
    f"{path} is damaged: restore it from a copy, or choose another --workdir."
  )
