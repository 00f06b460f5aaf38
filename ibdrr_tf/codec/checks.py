"""Checks inside graphs, each with a sentence that a user can read.

A check in a graph is only an op: nothing that it should guard waits for it
unless told to. So a check is always made together with what it guards:

>>> codes = guarded(codes, [(tf.reduce_all(codes >= 0), "the codes are …")])

TensorFlow wraps the sentence of a failed check in words of its own.
`as_user_error` finds the sentence again, among those that were ever given to a
check. `told` does so for all that runs in its context:

>>> with told("the codes cannot be decoded: restore them from a copy."):
...   images = decode(codes)
"""

import contextlib
from collections.abc import Iterator, Sequence

import tensorflow as tf

from ibdrr_tf.errors import UserError

__all__ = ["FAILURES", "as_user_error", "guarded", "told"]

# What TensorFlow raises where a check, or a kernel's own check, fails.
FAILURES = (tf.errors.InvalidArgumentError, tf.errors.DataLossError)

_sentences: set[str] = set()


def guarded(value, conditions: Sequence[tuple[tf.Tensor, str]]):
  """Gives a value that exists only if all conditions hold.

  Args:
    value: a tensor or a structure of tensors.
    conditions: pairs of bool [...], all of which must be true, and a sentence
      without a full stop. They are checked in order.

  Returns:
    The same tensors. Ops that use them run after the checks.

  Raises:
    tf.errors.InvalidArgumentError: when it runs, with the first sentence whose
      condition does not hold.
  """
  checks = []
  with tf.device("/CPU:0"):  # Kernels of other devices do not check.
    for condition, sentence in conditions:
      _sentences.add(sentence)
      with tf.control_dependencies(checks):
        checks.append(tf.debugging.Assert(tf.reduce_all(condition), [sentence]))
  with tf.control_dependencies(checks):
    return tf.nest.map_structure(tf.identity, value)


def as_user_error(error: tf.errors.OpError, otherwise: str) -> UserError:
  """The sentence of the check that failed.

  Args:
    error: what TensorFlow raised.
    otherwise: a sentence for errors that no check foresaw.
  """
  found = [known for known in _sentences if known in error.message]
  return UserError(f"{max(found, key=len)}." if found else otherwise)


@contextlib.contextmanager
def told(otherwise: str) -> Iterator[None]:
  """Raises the sentence of a failed check as UserError.

  Args:
    otherwise: a sentence for errors that no check foresaw.
  """
  try:
    yield
  except FAILURES as error:
    raise as_user_error(error, otherwise) from error
