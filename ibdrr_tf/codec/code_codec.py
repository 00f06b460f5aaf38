"""The lossless stage: codes to chains and back.

Images are divided into chains of a fixed number; full ones are coded side by
side, several at once, and the rest is a chain of its own. The coder may be
`BitSwap` or `StaticCoder`.
"""

from __future__ import annotations

import re
from typing import Protocol

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import chain
from ibdrr_tf.codec import planes as planes_module
from ibdrr_tf.errors import UserError

__all__ = ["CodeCodec", "Coder"]


class Coder(Protocol):
  """What codes planes; see `BitSwap`."""

  def encode(
    self, planes: tf.Tensor, group: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Planes, int32 [chains, images, h, w, planes], to messages."""

  def decode(
    self,
    messages: tf.Tensor,
    images: tf.Tensor,
    grid: tf.Tensor,
    group: tf.Tensor,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """The inverse, and what is left of the messages."""


class CodeCodec:
  """Compresses codes of both levels, exactly.

  Args:
    coder: of a frozen model.
    fingerprint: eight bytes that tell the model from any other.
    top_depth: stages of the top level.
    bottom_depth: stages of the bottom level.
    chain_images: images in a chain: more cost less, fewer can be read alone.
    group: images in a group of a chain.
    parallel: chains that are coded side by side.
  """

  def __init__(
    self,
    coder: Coder,
    fingerprint: bytes,
    top_depth: int = 1,
    bottom_depth: int = 1,
    *,
    chain_images: int = 1000,
    group: int = 32,
    parallel: int = 16,
  ):
    self._coder = coder
    self._fingerprint = tf.constant(fingerprint)
    self._depths = (top_depth, bottom_depth)
    self._planes = len(planes_module.plane_levels(top_depth, bottom_depth))
    self._chain_images = chain_images
    self._group = group
    self._parallel = parallel

  def compress(self, top: np.ndarray, bottom: np.ndarray) -> list[bytes]:
    """Codes to chains.

    Args:
      top: int [n, h, w, top_depth].
      bottom: int [n, 2h, 2w, bottom_depth].

    Returns:
      One string a chain; together they hold all images, in order.
    """
    if not len(top):
      return []
    planes = planes_module.to_planes(
      tf.constant(top, tf.int32), tf.constant(bottom, tf.int32)
    )
    size = min(self._chain_images, len(top))
    full = len(top) // size
    chains: list[bytes] = []
    for start in range(0, full, self._parallel):
      stop = min(start + self._parallel, full)
      block = planes[start * size : stop * size]
      shape = [stop - start, size, *planes.shape[1:]]
      chains += self._seal(tf.reshape(block, shape), len(chains))
    if full * size < len(top):
      chains += self._seal(planes[tf.newaxis, full * size :], len(chains))
    return chains

  def decompress(self, chains: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Chains of one grid to codes: the inverse of `compress`.

    Args:
      chains: all of them, or any run of neighbours, in order.

    Raises:
      UserError: if a chain is damaged, out of order, of another model or of a
        newer format.
    """
    try:
      opened = chain.open_chains(
        tf.constant(chains, tf.string, [len(chains)]),
        self._planes,
        self._fingerprint,
      )
      parts = self._decode_runs(opened)
    except (tf.errors.InvalidArgumentError, tf.errors.DataLossError) as error:
      raise UserError(f"{_sentence(error)}.") from error
    planes = tf.concat(parts, axis=0)
    top, bottom = planes_module.from_planes(planes, *self._depths)
    return top.numpy(), bottom.numpy()

  def _seal(self, planes: tf.Tensor, first: int) -> list[bytes]:
    messages, seed = self._coder.encode(planes, self._group)
    sealed = chain.seal(
      messages,
      seed,
      tf.shape(planes)[1:],
      self._group,
      first,
      self._fingerprint,
    )
    return sealed.numpy().tolist()

  def _decode_runs(self, opened: chain.Opened) -> list[tf.Tensor]:
    """Decodes neighbours of equal count together."""
    shapes = tf.concat(
      [opened.images[:, tf.newaxis], opened.grid, opened.group[:, tf.newaxis]],
      axis=1,
    ).numpy()
    parts, start = [], 0
    while start < len(shapes):
      stop = start + 1
      while (
        stop < len(shapes)
        and stop - start < self._parallel
        and (shapes[stop] == shapes[start]).all()
      ):
        stop += 1
      images, height, width, group = shapes[start]
      planes, left = self._coder.decode(
        opened.messages[start:stop], images, [height, width], group
      )
      chain.check_seed(left, opened.seed[start:stop])
      shape = tf.concat([[-1], tf.shape(planes)[2:]], axis=0)
      parts.append(tf.reshape(planes, shape))
      start = stop
    return parts


def _sentence(error: tf.errors.OpError) -> str:
  """The sentence that an assertion was given, out of TensorFlow's wording."""
  found = re.search(r"(a chain|a message|per-position) [^'\n]*", error.message)
  if found:
    return found.group()
  return f"the chains cannot be decoded ({error.message.splitlines()[0]})"
