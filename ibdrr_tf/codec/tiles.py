"""Large pictures, tile by tile.

The networks of the lossy stage are convolutions, so a code depends on the
pixels around it and on no others. A picture of many megapixels is therefore cut
into tiles, each with a border wide enough for all convolutions together; the
border's own results are cut off. The results are those of the whole picture,
but for the last bit of a float sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

__all__ = ["CELL", "over_tiles"]

# Pixels on a side of a cell, the unit in which tiles are cut.
CELL = 8
# Cells on a side of a tile, and of the border around it. The top codes see 6
# cells around them and the bottom codes 4 more; images see 7 cells of codes.
_TILE = 64
_BORDER = 12


def over_tiles(
  function: Callable[..., Sequence[tf.Tensor]],
  arguments: Sequence[tf.Tensor],
  scales: Sequence[int],
  results: Sequence[tuple[tf.DType, int]],
  *,
  tile: int = _TILE,
  border: int = _BORDER,
) -> tuple[tf.Tensor, ...]:
  """Calls a function of pictures on one tile at a time.

  Args:
    function: of tensors [n, height, width, channels] to such tensors.
    arguments: its tensors.
    scales: of each argument, rows (and columns) of a cell.
    results: type of each result, and rows of a cell.
    tile: cells on a side of a tile.
    border: cells around a tile that its results may depend on.

  Returns:
    What the function gives for the whole picture.
  """
  cells = tf.shape(arguments[0])[1:3] // scales[0]

  def one(row: tf.Tensor, column: tf.Tensor) -> list[tf.Tensor]:
    """The results of one tile, without its border."""
    start = tf.stack([row, column]) * tile
    stop = tf.minimum(start + tile, cells)
    outer = tf.maximum(start - border, 0)
    end = tf.minimum(stop + border, cells)
    found = function(
      *(
        _cut(value, outer * scale, end * scale)
        for value, scale in zip(arguments, scales, strict=True)
      )
    )
    return [
      _cut(value, (start - outer) * scale, (stop - outer) * scale)
      for value, (_, scale) in zip(found, results, strict=True)
    ]

  dtypes = [dtype for dtype, _ in results]
  rows, columns = tf.unstack(-(-cells // tile))
  return _joined(
    lambda row: _joined(lambda column: one(row, column), columns, 2, dtypes),
    rows,
    1,
    dtypes,
  )


def _cut(value: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
  return value[:, start[0] : stop[0], start[1] : stop[1]]


def _joined(
  part: Callable[[tf.Tensor], Sequence[tf.Tensor]],
  count: tf.Tensor,
  axis: int,
  dtypes: Sequence[tf.DType],
) -> tuple[tf.Tensor, ...]:
  """Calls `part` with 0 .. count - 1 and joins the results along an axis."""
  # A tensor array joins along the first axis only.
  order = [axis, *(k for k in range(4) if k != axis)]
  back = [order.index(k) for k in range(4)]
  arrays = [
    tf.TensorArray(dtype, count, infer_shape=False, element_shape=[None] * 4)
    for dtype in dtypes
  ]

  def body(number, arrays):
    written = [
      array.write(number, tf.transpose(value, order))
      for array, value in zip(arrays, part(number), strict=True)
    ]
    return number + 1, written

  _, arrays = tf.while_loop(
    lambda number, _: number < count, body, [0, arrays], parallel_iterations=1
  )
  return tuple(tf.transpose(array.concat(), back) for array in arrays)
