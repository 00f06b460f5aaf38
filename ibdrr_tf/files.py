"""Files that are either wholly there or not at all."""

import contextlib
import errno
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator
from typing import Any

from ibdrr_tf.errors import UserError

__all__ = [
  "beside",
  "check_writable",
  "remove_leftovers",
  "replaced",
  "write_bytes",
  "write_json",
  "write_text",
]

# The place itself is wrong; others, such as a full disk, come and go.
_WRONG_PLACE = {
  errno.EACCES,
  errno.EEXIST,
  errno.EISDIR,
  errno.ENAMETOOLONG,
  errno.ENOENT,
  errno.ENOTDIR,
  errno.EPERM,
  errno.EROFS,
}
_LEFTOVER = re.compile(r"\..+\.\d+\.part(\.[^.]+)?")


def beside(path: str | os.PathLike[str]) -> pathlib.Path:
  """Where to write what will be moved to `path`, in a folder that is there.

  Raises:
    UserError: if nothing can be written there.
  """
  path = pathlib.Path(path)
  # The suffix is kept, because some writers choose the format by it.
  other = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
  try:
    path.parent.mkdir(parents=True, exist_ok=True)
    if other.is_dir():  # Of a process that had this number before.
      shutil.rmtree(other)
    other.touch()
    other.unlink()
  except OSError as error:
    if error.errno not in _WRONG_PLACE:
      raise
    raise UserError(
      f"{path} cannot be written ({error.strerror}): choose another place."
    ) from error
  return other


def check_writable(path: str | os.PathLike[str]) -> None:
  """Refuses a file that could not be written, before there is work to lose."""
  _part_of_file(path)


def remove_leftovers(folder: pathlib.Path) -> None:
  """Removes what a process that was killed was writing, at any depth."""
  for path in list(folder.rglob(".*.part*")):
    if _LEFTOVER.fullmatch(path.name):
      if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
      else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
  """Gives a path beside `path` to write to, then moves it into place.

  The file is flushed to the disk before it is renamed, so that whoever kills
  the process, or the machine, leaves the old file or the new one, never a part.

  Args:
    path: the file to replace; its folder is made if it is not there.

  Yields:
    The path to write to. When the block raises, `path` is left as it was.
  """
  part = _part_of_file(path)
  try:
    yield part
    with open(part, "rb") as written:
      os.fsync(written.fileno())
    os.replace(part, path)
  finally:
    part.unlink(missing_ok=True)


def _part_of_file(path: str | os.PathLike[str]) -> pathlib.Path:
  if pathlib.Path(path).is_dir():
    raise UserError(f"{path} is a folder: give the name of a file.")
  return beside(path)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
  """Writes a file atomically."""
  with replaced(path) as part:
    part.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
  """Writes a text file atomically, as UTF-8."""
  write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
  """Writes a value as readable JSON, atomically."""
  write_text(path, json.dumps(value, indent=2) + "\n")
