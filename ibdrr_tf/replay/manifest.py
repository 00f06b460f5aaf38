"""The folder of a memory: the manifest of a step names the files that count.

    memory/manifest-<step>.json   parts of the memory after a step, by name
    memory/<part>-<step>.…        files that a step has added or rewritten

A step writes files under names of its own beside those of earlier steps, and
its manifest last. Whoever owns the memory decides which step counts: a learner
by its `state.json`, a memory on its own by the newest manifest. Only then does
`settle` remove files that no longer count, and only after it has found all
files that do.
"""

import hashlib
import json
import pathlib
import re
from typing import Any

from ibdrr_tf import files
from ibdrr_tf.distribution import ALONE, Team
from ibdrr_tf.errors import UserError

__all__ = ["REMEDY", "MemoryFolder"]

_VERSION = 2
_NAME = re.compile(r"manifest-(\d+)\.json")
# Files that steps write here; nothing else is ever removed.
_OURS = re.compile(r"[a-z_]+-\d{3,}\.(json|tfrecord|npz)")
REMEDY = "restore it from a copy, or start again in another folder"


class MemoryFolder:
  """Files of one memory, and the manifest that is in force.

  Args:
    path: the folder; need not exist yet.
    step: whose manifest is in force; -1 is an empty memory, None the newest.
    team: the workers that share it; the chief writes.

  Attributes:
    path: the folder.
    team: the workers that share it.
    step: of the manifest in force; -1 without one.
    parts: contents of the manifest, by the name of the part. A part is a
      dictionary whose entry "files" gives the size of each of its files.
  """

  def __init__(
    self,
    path: str | pathlib.Path,
    step: int | None = None,
    team: Team = ALONE,
  ):
    self.path = pathlib.Path(path)
    self.team = team
    self.step = self._newest() if step is None else step
    self.parts: dict[str, dict[str, Any]] = {}
    if self.step >= 0:
      self.parts = self._read()
    elif step is None and (self.path / "manifest.json").is_file():
      self.parts = self._read_version_1()

  def part(self, name: str, nothing: dict[str, Any]) -> dict[str, Any]:
    """The part of that name in the manifest in force.

    Args:
      name: of the part.
      nothing: the part before anything is kept. A part that is there has all
        its entries, of the same types; None stands for a text.

    Raises:
      UserError: if an entry is missing or of another type.
    """
    part = self.parts.get(name, nothing)
    for entry, empty in nothing.items():
      kinds = (type(None), str) if empty is None else type(empty)
      if not isinstance(part.get(entry), kinds) or entry not in part:
        raise UserError(
          f"the manifest of the memory {self.path} has no {entry} of its "
          f"{name}: {REMEDY}."
        )
    return part

  def new_file(self, part: str, step: int, suffix: str) -> pathlib.Path:
    """Where a step writes a part; never one of the files in force."""
    self._check_later(step)
    return self.path / f"{part}-{step:03d}.{suffix}"

  def write(self, step: int, parts: dict[str, dict[str, Any]]) -> None:
    """Writes the manifest of a step, which is in force here from now on.

    Args:
      step: later than the one in force.
      parts: as the attribute of that name; their files are there already.
    """
    self._check_later(step)
    body = {"version": _VERSION, "step": step, "parts": parts}
    body["checksum"] = _checksum(body)
    text = json.dumps(body, separators=(",", ":")) + "\n"
    path = self._manifest_path(step)
    self.team.on_chief(lambda: files.write_text(path, text))
    self.step, self.parts = step, parts

  def settle(self) -> None:
    """Removes the files of all other steps, once those in force are found.

    Raises:
      UserError: if a file that counts is missing or has another size; nothing
        is removed then.
    """
    named = self.check()
    self.team.on_chief(lambda: self._remove_all_but(named))

  def check(self) -> dict[str, int]:
    """Sizes of all files in force, the manifest among them.

    Raises:
      UserError: naming the file, if one is missing or has another size.
    """
    named = {
      name: size
      for part in self.parts.values()
      for name, size in part.get("files", {}).items()
    }
    for name, size in named.items():
      path = self.path / name
      if not path.is_file():
        raise UserError(f"the memory file {path} is missing: {REMEDY}.")
      if path.stat().st_size != size:
        raise UserError(
          f"the memory file {path} has {path.stat().st_size} bytes, where its "
          f"manifest says {size}: {REMEDY}."
        )
    if self.step >= 0:
      manifest = self._manifest_path(self.step)
      named[manifest.name] = manifest.stat().st_size
    return named

  @property
  def manifest_bytes(self) -> int:
    """Size of the manifest in force; 0 without one."""
    if self.step < 0:
      return 0
    return self._manifest_path(self.step).stat().st_size

  def _check_later(self, step: int) -> None:
    if step <= self.step:
      raise ValueError(f"step {step} is not after step {self.step}")

  def _remove_all_but(self, named: dict[str, int]) -> None:
    if self.path.is_dir():
      for path in self.path.iterdir():
        is_ours = _OURS.fullmatch(path.name) and path.name not in named
        if is_ours and not path.is_dir():
          path.unlink()

  def _newest(self) -> int:
    if not self.path.is_dir():
      return -1
    found = [_NAME.fullmatch(path.name) for path in self.path.iterdir()]
    return max((int(match[1]) for match in found if match), default=-1)

  def _manifest_path(self, step: int) -> pathlib.Path:
    return self.path / f"manifest-{step:03d}.json"

  def _read(self) -> dict[str, dict[str, Any]]:
    path = self._manifest_path(self.step)
    if not path.is_file():
      raise UserError(f"the memory file {path} is missing: {REMEDY}.")
    try:
      body = json.loads(path.read_text(encoding="utf-8"))
      version = body["version"]
      if version > _VERSION:
        raise UserError(
          f"{path} was written by a newer version of ibdrr_tf: use that "
          f"version."
        )
      is_whole = body.pop("checksum") == _checksum(body)
      is_whole &= body["step"] == self.step
      parts = body["parts"]
      is_whole &= all(
        type(size) is int and pathlib.PurePath(name).name == name
        for part in parts.values()
        for name, size in part.get("files", {}).items()
      )
    except (
      *(OSError, ValueError, KeyError, TypeError, AttributeError),
      RecursionError,
    ) as error:
      raise UserError(f"{path} is damaged: {REMEDY}.") from error
    if not is_whole:
      raise UserError(f"{path} is damaged: {REMEDY}.")
    return parts

  def _read_version_1(self) -> dict[str, dict[str, Any]]:
    """The memory of a run of version 0.1.0: one file of chains.

    Its step is -1: the first step that is written here gets a manifest of the
    new form, which names the old file for as long as it counts.
    """
    path = self.path / "manifest.json"
    try:
      body = json.loads(path.read_text(encoding="utf-8"))
      file = self.path / f"chains-{body['phase']:03d}.tfrecord"
      data = file.read_bytes()
      part = {name: body[name] for name in ("images", "codes", "payload")}
      part["model"] = body["model"]
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
      raise UserError(f"{path} is damaged: {REMEDY}.") from error
    chains, place = 0, 0
    while place < len(data):  # Length, its checksum, data, their checksum.
      place += int.from_bytes(data[place : place + 8], "little") + 16
      chains += 1
    files_ = {file.name: len(data)}
    return {
      "codes": {
        **part,
        "files": files_,
        "chains": chains,
        "fitted": part["images"],
      }
    }


def _checksum(body: dict[str, Any]) -> str:
  text = json.dumps(body, sort_keys=True, separators=(",", ":"))
  return hashlib.sha256(text.encode()).hexdigest()[:16]
