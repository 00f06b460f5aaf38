"""How many bits codes cost, before any model has looked at them."""

import numpy as np

__all__ = ["code_bytes", "order0_entropy"]


def order0_entropy(codes: np.ndarray) -> float:
  """Bits a code that an ideal coder needs with one histogram for all.

  Args:
    codes: integers of any shape.
  """
  _, counts = np.unique(codes, return_counts=True)
  share = counts / counts.sum()
  return float(-(share * np.log2(share)).sum())


def code_bytes(top: np.ndarray, bottom: np.ndarray) -> float:
  """Order-0 bytes an image, each stage of each level with its own histogram.

  Args:
    top: int [n, h, w, depth].
    bottom: int [n, h', w', depth'].
  """
  bits = sum(
    order0_entropy(level[..., stage]) * level[0, ..., stage].size
    for level in (top, bottom)
    for stage in range(level.shape[-1])
  )
  return bits / 8
