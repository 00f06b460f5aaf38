"""The one exception that a user is meant to read."""

__all__ = ["UserError"]


class UserError(Exception):
  """A mistake in flags, configs, files or shapes, told in one sentence.

  The message names the culprit and the remedy. Commands print it on standard
  error and exit with code 2; no traceback is shown.
  """
