"""The range coder of TensorFlow Compression, as pure functions.

This is the only file that imports `tensorflow_compression`, or, for TensorFlow
2.17, `tensorflow_compression_ops`: the same ops, which write the same bytes.
They keep their state in handles that are changed in place and cannot be stored,
so here every handle is made, used and finished within one call, or passed on
explicitly from one `decode_next` to the next.

A *table* is the distribution of one symbol, in integers: `[16, 0, c_1, …,
65536]`, where c_k / 65536 is the probability of a symbol less than k. Many
tables, of any length, make a *lookup*; an index chooses the table of each
symbol. No probability may be zero: the coder's behaviour would be undefined.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from ibdrr_tf.errors import UserError

try:
  import tensorflow_compression as tfc
except ModuleNotFoundError:
  import tensorflow_compression_ops as tfc

__all__ = [
  "OPS",
  "PRECISION",
  "decode",
  "decode_next",
  "encode",
  "least_bits",
  "make_lookup",
  "start_decoding",
]

# The module that has to be imported before a graph with these ops is loaded.
OPS = tfc.__name__
# Probabilities are multiples of 2^-16, the finest that the coder knows.
PRECISION = 16


def make_lookup(cumulative: Sequence[np.ndarray]) -> np.ndarray:
  """Joins cumulative distributions to the form that the coder wants.

  Args:
    cumulative: for each table, int [symbols + 1] from 0 to 65536, strictly
      increasing.

  Returns:
    int32 [sum of (symbols + 2)], one table after the other.
  """
  rows = []
  for number, table in enumerate(cumulative):
    table = np.asarray(table)
    if (
      table[0] != 0 or table[-1] != 1 << PRECISION or (np.diff(table) < 1).any()
    ):
      raise UserError(
        f"table {number} is no distribution of positive integer probabilities: "
        f"it must rise strictly from 0 to {1 << PRECISION}."
      )
    rows.append(np.concatenate([[PRECISION], table]))
  return np.concatenate(rows).astype(np.int32)


def least_bits(cumulative: Sequence[np.ndarray]) -> np.ndarray:
  """Bits of the likeliest symbol of each table: float64 [tables]."""
  most = np.array([np.diff(table).max() for table in cumulative])
  return PRECISION - np.log2(most)


def encode(index: tf.Tensor, value: tf.Tensor, lookup: tf.Tensor) -> tf.Tensor:
  """Writes symbols, one string for each row.

  Args:
    index: int32 [m, n], the table of each symbol; m and n at least 1.
    value: int32 [m, n], the symbols.
    lookup: as `make_lookup` gives it.

  Returns:
    string [m]. They are not self-delimiting: trailing zeros are left out.
  """
  handle = tfc.create_range_encoder(tf.shape(index)[:1], lookup)
  handle = tfc.entropy_encode_index(handle, index, value)
  return tfc.entropy_encode_finalize(handle)


def start_decoding(strings: tf.Tensor, lookup: tf.Tensor) -> tf.Tensor:
  """Opens strings, string [m], for `decode_next`; gives a handle."""
  return tfc.create_range_decoder(strings, lookup)


def decode_next(
  handle: tf.Tensor, index: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
  """Reads the next symbols of each string.

  Args:
    handle: from `start_decoding` or the call before; use it once only.
    index: int32 [m, n], the table of each symbol.

  Returns:
    The handle for what follows, and the symbols, int32 [m, n]. Past the end of
    a string there are zeros, not an error.
  """
  return tfc.entropy_decode_index(
    handle, index, tf.shape(index)[1:], Tdecoded=tf.int32
  )


def decode(
  strings: tf.Tensor, index: tf.Tensor, lookup: tf.Tensor
) -> tf.Tensor:
  """Reads all symbols, int32 [m, n]: the inverse of `encode`."""
  return decode_next(start_decoding(strings, lookup), index)[1]
