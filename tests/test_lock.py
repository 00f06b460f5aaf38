"""Tests of `lock`."""

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
