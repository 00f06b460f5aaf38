"""Lets one process at a time change a folder."""

import fcntl
import os
import pathlib
import socket

from ibdrr_tf.errors import UserError

__all__ = ["Lock"]


class Lock:
  """Lets one process at a time change a folder.

  The operating system gives the lock up when its process ends, however it
  ends, so a lock is never stale. Used as a context; may be entered again.

  Args:
    folder: made if it is not there.
  """

  def __init__(self, folder: pathlib.Path):
    self._folder = folder
    self._depth = 0

  def __enter__(self) -> "Lock":
    self._depth += 1
    if self._depth > 1:
      return self
    try:
      self._folder.mkdir(parents=True, exist_ok=True)
      # Another version, or a damaged disk, may have written anything there.
      self._file = open(
        self._folder / ".lock", "a+", encoding="utf-8", errors="replace"
      )
    except OSError as error:
      self._depth = 0
      raise UserError(
        f"the folder {self._folder} cannot be written "
        f"({error.strerror or error}): choose another."
      ) from error
    try:
      fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
      raise self._failed(error) from error
    self._file.seek(0)
    self._file.truncate()
    self._file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    self._file.flush()
    return self

  def _failed(self, error: OSError) -> UserError:
    """Gives up; says who holds the lock, if that is why."""
    self._depth = 0
    with self._file:
      if not isinstance(error, BlockingIOError):
        return UserError(
          f"the folder {self._folder} cannot be locked ({error.strerror}): "
          f"choose one on another disk."
        )
      self._file.seek(0)
      holder = self._file.readline(200).strip() or "another process"
    return UserError(
      f"the folder {self._folder} is in use by {holder}: wait until it has "
      f"finished, or stop it."
    )

  def __exit__(self, *_) -> None:
    self._depth -= 1
    if not self._depth:
      self._file.close()
