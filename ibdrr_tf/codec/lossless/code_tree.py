"""A codebook as a binary tree: each code is a path of yes-or-no decisions.

A categorical distribution over 512 codes would need a new table for every
symbol, and the range coder fixes its tables when it is opened. As a path of
nine decisions, a code needs only Bernoulli distributions from one fixed list,
so all codes of a group go through one coder, however many passes of context
they take, and only the nodes on the path are ever computed.

Codes that lie close together share long beginnings of their paths: the tree
halves the codebook again and again along its direction of largest variance.
"""

import numpy as np

from ibdrr_tf.errors import UserError

__all__ = ["bits_of_codes", "make_tree"]


def make_tree(codebook: np.ndarray) -> np.ndarray:
  """Orders codes so that halving the order halves the codebook sensibly.

  Args:
    codebook: float [codes, embedding]; codes is a power of two.

  Returns:
    int32 [codes]: the leaf, 0 .. codes - 1, of each code. The bits of a leaf,
    the highest first, are its path.
  """
  if len(codebook) < 2 or len(codebook) & (len(codebook) - 1):
    raise UserError(
      f"a codebook of {len(codebook)} codes makes no tree: give a power of "
      f"two, such as 512."
    )
  leaf = np.empty(len(codebook), np.int32)
  _place(codebook, np.arange(len(codebook)), 0, leaf)
  return leaf


def _place(
  codebook: np.ndarray, members: np.ndarray, first: int, leaf: np.ndarray
) -> None:
  if len(members) == 1:
    leaf[members[0]] = first
    return
  vectors = codebook[members] - codebook[members].mean(axis=0)
  _, _, directions = np.linalg.svd(vectors, full_matrices=False)
  # Ties and signs are settled by the code's number, which is always the same.
  order = members[np.argsort(vectors @ directions[0], kind="stable")]
  half = len(order) // 2
  _place(codebook, np.sort(order[:half]), first, leaf)
  _place(codebook, np.sort(order[half:]), first + half, leaf)


def bits_of_codes(leaf: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """The path of each code.

  Args:
    leaf: int [codes], as `make_tree` gives it.

  Returns:
    nodes, int32 [codes, depth], the decision's number at each level (the root
    is 0, the children of node k are 2k + 1 and 2k + 2), and bits, int32
    [codes, depth], what is decided there.
  """
  depth = len(leaf).bit_length() - 1
  levels = np.arange(depth)
  bits = (leaf[:, np.newaxis] >> (depth - 1 - levels)) & 1
  prefix = leaf[:, np.newaxis] >> (depth - levels)
  nodes = (1 << levels) - 1 + prefix
  return nodes.astype(np.int32), bits.astype(np.int32)
