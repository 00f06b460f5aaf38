"""How much memory a block of a test took at its peak."""

import contextlib
import resource
import sys

_UNIT = 1 if sys.platform == "darwin" else 1024


@contextlib.contextmanager
def at_most(megabytes):
  """Fails if the process grows by more than that."""
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  yield
  after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  assert (after - before) * _UNIT / 1e6 < megabytes
