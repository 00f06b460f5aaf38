"""Tests of `lock`."""

import errno
import fcntl
import os

import pytest

from ibdrr_tf.errors import UserError
from ibdrr_tf.lock import Lock


def test_a_lock_names_its_holder_and_ends_with_it(tmp_path):
  with (
    Lock(tmp_path) as held,
    held,
    pytest.raises(UserError, match=r"in use by process \d+ on \S+: wait"),
    Lock(tmp_path),
  ):
    pass
  # What a process that was killed has left behind is no lock.
  (tmp_path / ".lock").write_text("process 1 on elsewhere\n")
  with Lock(tmp_path):
    pass


@pytest.mark.parametrize("text", [b"\xff\n", b"", b"x" * 10**6, b"a\nb\n"])
def test_whatever_a_lock_file_holds_gets_one_sentence(tmp_path, text):
  with Lock(tmp_path):
    (tmp_path / ".lock").write_bytes(text)
    with (
      pytest.raises(UserError, match="is in use by") as error,
      Lock(tmp_path),
    ):
      pass
  assert "\n" not in str(error.value) and len(str(error.value)) < 600
  with Lock(tmp_path):
    pass


def test_a_lock_that_cannot_be_had_is_not_held_by_another(
  tmp_path, monkeypatch
):
  """Some network disks know no locks; a pipe cannot be written to."""

  def refuse(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

  with monkeypatch.context() as patched:
    patched.setattr(fcntl, "flock", refuse)
    with pytest.raises(UserError, match="cannot be locked"), Lock(tmp_path):
      pass
  with Lock(tmp_path):
    pass
  (tmp_path / ".lock").unlink()
  os.mkfifo(tmp_path / ".lock")
  with pytest.raises(UserError, match="cannot be written"), Lock(tmp_path):
    pass
