"""The simplest lossless codec: fixed tables, counted once.

*Order 0* has one histogram for each codebook, *per position* one for each plane
and place of the grid. They take no bits back and need no network; whatever a
learned model gains, it gains over these.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import checks, model_file
from ibdrr_tf.codec.lossless import planes as planes_module
from ibdrr_tf.codec.lossless import range_coder
from ibdrr_tf.errors import UserError

__all__ = ["StaticCoder", "count_tables", "pack_plainly", "unpack_plainly"]

_MAGIC = b"IBST"
_VERSION = 1
# Places of all grids of a chain up to which a message may have any length. The
# coder leaves out zeros at the end, so few images may take no bytes at all.
_FREE_PLACES = 1 << 16


class StaticCoder:
  """Codes planes with fixed tables, behind the same calls as `BitSwap`.

  Args:
    tables: int [positions, planes, codes + 1], cumulative; one position is
      order 0, otherwise there are as many as the grid has places.
    grid: (height, width) that the tables are for, or None for any.
  """

  def __init__(self, tables: np.ndarray, grid: tuple[int, int] | None):
    self.tables = tables
    self.grid = grid
    rows = tables.reshape(-1, tables.shape[-1])
    self._lookup = tf.constant(range_coder.make_lookup(list(rows)))
    bits = range_coder.least_bits(list(rows)).reshape(tables.shape[:2])
    self._least_bits = bits.sum(axis=1).min()  # Of a place.

  def takes(self, grid: tf.Tensor) -> tf.Tensor:
    """Whether it can code images of a grid; `encode` says why not."""
    return tf.constant(True)

  def least_bytes(
    self, images: tf.Tensor, grid: tf.Tensor, group: tf.Tensor
  ) -> tf.Tensor:
    """Length that no message of so many images is below; see `Coder`."""
    del group
    places = tf.cast(images, tf.int64) * tf.reduce_prod(
      tf.cast(grid, tf.int64), axis=-1
    )
    least = tf.cast(places, tf.float64) * (self._least_bits / 8)
    return tf.where(places > _FREE_PLACES, tf.cast(least, tf.int64), 0)

  def encode(
    self, planes: tf.Tensor, group: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Codes int32 [chains, images, h, w, planes]; see `BitSwap.encode`."""
    shape = tf.shape(planes)
    value = tf.reshape(planes, [shape[0], -1])
    # The coder does not look: a symbol beyond its table would be written wrong.
    value = planes_module.known(value, self.tables.shape[-1] - 1)
    strings = range_coder.encode(self._index(shape), value, self._lookup)
    # Zeros at the end say nothing, but show that so many images may be there.
    least = self.least_bytes(shape[1], shape[2:4], group)
    missing = least - tf.cast(tf.strings.length(strings), tf.int64)
    missing = tf.cast(tf.maximum(missing, 0), tf.int32)
    zeros = tf.strings.reduce_join(tf.fill([tf.reduce_max(missing)], b"\0"))
    zeros = tf.strings.substr(
      tf.repeat(zeros, shape[0]), tf.zeros_like(missing), missing
    )
    return tf.strings.join([strings, zeros]), tf.zeros([shape[0]], tf.int32)

  def decode(
    self,
    messages: tf.Tensor,
    images: tf.Tensor,
    grid: tf.Tensor,
    group: tf.Tensor,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """The inverse; see `BitSwap.decode`. Nothing is left of the messages."""
    del group
    chains = tf.shape(messages)[0]
    count = self.tables.shape[1]
    shape = tf.stack([chains, images, grid[0], grid[1], count])
    value = range_coder.decode(messages, self._index(shape), self._lookup)
    return tf.reshape(value, shape), tf.fill([chains], "")

  def to_bytes(self) -> bytes:
    """The stored form of the tables."""
    header = {"shape": list(self.tables.shape), "grid": self.grid}
    steps = np.diff(self.tables, axis=-1).astype("<u2")
    return model_file.pack(_MAGIC, _VERSION, header, [steps])

  @classmethod
  def from_bytes(cls, data: bytes) -> "StaticCoder":
    """The coder that `to_bytes` stored."""
    header, body = model_file.unpack(data, _MAGIC, _VERSION, "static model")
    shape, grid = header.get("shape"), header.get("grid")
    if not _are_sides(shape, 3) or shape[2] < 2:
      raise body.forged("its header has no shape of tables")
    if grid is not None and not (
      _are_sides(grid, 2) and grid[0] * grid[1] == shape[0]
    ):
      raise body.forged("its grid does not fit its tables")
    *places, edges = shape
    steps = body.take([*places, edges - 1], "<u2").astype(np.int64)
    body.check_end()
    tables = np.concatenate(
      [np.zeros([*places, 1], np.int64), np.cumsum(steps, axis=-1)], axis=-1
    )
    return cls(tables, tuple(grid) if grid else None)

  def _index(self, shape: tf.Tensor) -> tf.Tensor:
    """The table of each symbol, int32 [chains, symbols]."""
    if self.grid is not None:
      shape = checks.guarded(
        shape,
        [
          (
            tf.equal(shape[2:4], list(self.grid)),
            "per-position tables are for images of one size only",
          )
        ],
      )
    positions, count = self.tables.shape[:2]
    places = tf.range(shape[2] * shape[3]) % positions
    index = places[:, tf.newaxis] * count + tf.range(count)
    return tf.tile(tf.reshape(index, [1, -1]), [shape[0], shape[1]])


def _are_sides(values: Any, count: int) -> bool:
  """Whether a header's value is a list of so many positive whole numbers."""
  return (
    isinstance(values, list)
    and len(values) == count
    and all(type(value) is int and value > 0 for value in values)
  )


def count_tables(
  planes: np.ndarray,
  codes: int,
  top_depth: int,
  bottom_depth: int,
  *,
  per_position: bool,
) -> StaticCoder:
  """Counts codes and makes a coder of the counts.

  Args:
    planes: int [n, h, w, planes].
    codes: size of every codebook.
    top_depth: stages of the top level.
    bottom_depth: stages of the bottom level.
    per_position: whether places of the grid have their own tables.
  """
  count, height, width, number = planes.shape
  if codes >= 1 << 15:
    raise UserError(f"codebooks of {codes} codes are too large: at most 32767.")
  places = planes.reshape(count, height * width, number)
  offset = np.arange(places.shape[1] * number).reshape(places.shape[1:]) * codes
  histogram = np.bincount(
    (places + offset).ravel(), minlength=offset.size * codes
  ).reshape(*places.shape[1:], codes)
  if not per_position:
    # All planes of a codebook, at all places, are one distribution.
    levels = np.array(planes_module.plane_levels(top_depth, bottom_depth))
    by_level = np.stack(
      [
        histogram[:, levels == level].sum(axis=(0, 1))
        for level in range(levels.max() + 1)
      ]
    )
    histogram = by_level[levels][np.newaxis]
  grid = (height, width) if per_position else None
  return StaticCoder(_to_cumulative(histogram), grid)


def _to_cumulative(histogram: np.ndarray) -> np.ndarray:
  """Counts [..., codes] to cumulative integers, at least one for each code."""
  codes = histogram.shape[-1]
  sums = np.cumsum(histogram, axis=-1, dtype=np.int64)
  total = np.maximum(sums[..., -1:], 1)
  free = (1 << range_coder.PRECISION) - codes
  inner = sums * free // total + np.arange(1, codes + 1)
  # An empty histogram would end too low; its last entry is always the whole.
  inner[..., -1] = 1 << range_coder.PRECISION
  start = np.zeros([*histogram.shape[:-1], 1], np.int64)
  return np.concatenate([start, inner], axis=-1)


def pack_plainly(planes: np.ndarray, codes: int) -> bytes:
  """As many bits a code as its largest needs: the yardstick."""
  shifts = _plain_shifts(codes)
  bits = (planes.reshape(-1, 1) >> shifts) & 1
  return np.packbits(bits.astype(np.uint8)).tobytes()


def unpack_plainly(
  data: bytes, shape: tuple[int, ...], codes: int
) -> np.ndarray:
  """Planes, int32 of a shape, out of what `pack_plainly` made of them."""
  shifts = _plain_shifts(codes)
  count = int(np.prod(shape)) * len(shifts)
  bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count)
  weights = (1 << shifts).astype(np.int32)
  return (bits.reshape(*shape, len(shifts)) @ weights).astype(np.int32)


def _plain_shifts(codes: int) -> np.ndarray:
  """Places of the bits of a number below `codes`, the highest first."""
  width = max(1, (codes - 1).bit_length())
  return np.arange(width - 1, -1, -1)
