"""Files that are either wholly there or not at all."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

__all__ = ["replaced", "write_bytes", "write_json", "write_text"]


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
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  # The suffix is kept, because some writers choose the format by it.
  beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
  try:
    yield beside
    with open(beside, "rb") as written:
      os.fsync(written.fileno())
    os.replace(beside, path)
  finally:
    beside.unlink(missing_ok=True)


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
  """Writes a file atomically."""
  with replaced(path) as beside:
    beside.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str) -> None:
  """Writes a text file atomically, as UTF-8."""
  write_bytes(path, text.encode("utf-8"))


def write_json(path: str | os.PathLike[str], value: Any) -> None:
  """Writes a value as readable JSON, atomically."""
  write_text(path, json.dumps(value, indent=2) + "\n")
