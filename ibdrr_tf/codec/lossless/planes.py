"""Both levels of codes as one list of planes on one grid.

The bottom level has twice the resolution of the top one. Divided into its four
phases of 2x2, it becomes four planes of the top's size, and so all codes lie on
one small grid, in the order in which they are coded: the top first, then each
stage of the bottom, a phase at a time. A plane is coded knowing all planes
before it.
"""

from collections.abc import Sequence

import tensorflow as tf

from ibdrr_tf.codec import checks

__all__ = ["PHASES", "from_planes", "known", "plane_levels", "to_planes"]

# Diagonal neighbours first: the other two phases lie between known codes.
_PHASES = ((0, 0), (1, 1), (0, 1), (1, 0))
# Planes of one stage of the bottom level.
PHASES = len(_PHASES)


def plane_levels(top_depth: int, bottom_depth: int) -> list[int]:
  """For each plane, the codebook that its codes come from.

  The top's stages are codebooks 0 to top_depth - 1, then come the bottom's.
  """
  levels = list(range(top_depth))
  for stage in range(bottom_depth):
    levels += [top_depth + stage] * len(_PHASES)
  return levels


def to_planes(top: tf.Tensor, bottom: tf.Tensor) -> tf.Tensor:
  """Codes to planes.

  Args:
    top: int32 [n, h, w, top_depth].
    bottom: int32 [n, 2h, 2w, bottom_depth].

  Returns:
    int32 [n, h, w, planes].
  """
  planes = [top]
  for stage in range(bottom.shape[-1]):
    planes += [
      bottom[:, row::2, column::2, stage : stage + 1] for row, column in _PHASES
    ]
  return tf.concat(planes, axis=-1)


def known(values: tf.Tensor, codes: int | Sequence[int]) -> tf.Tensor:
  """Codes, int32 [..., planes], all of which are in their codebooks.

  Args:
    values: the codes.
    codes: size of the codebook, of each plane or of all.
  """
  sentence = "the codes have numbers outside the codebook"
  return checks.guarded(values, [((values >= 0) & (values < codes), sentence)])


def from_planes(
  planes: tf.Tensor, top_depth: int, bottom_depth: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Planes, int32 [n, h, w, planes], to (top, bottom)."""
  shape = tf.shape(planes)
  stages = []
  for stage in range(bottom_depth):
    start = top_depth + stage * len(_PHASES)
    by_phase = {
      phase: planes[..., start + number] for number, phase in enumerate(_PHASES)
    }
    rows = [
      tf.stack([by_phase[row, 0], by_phase[row, 1]], axis=-1) for row in (0, 1)
    ]  # Each [n, h, w, 2]: columns interleave in the last axis,
    square = tf.stack(rows, axis=2)  # rows before the columns: [n, h, 2, w, 2].
    stages.append(tf.reshape(square, [shape[0], 2 * shape[1], 2 * shape[2]]))
  return planes[..., :top_depth], tf.stack(stages, axis=-1)
