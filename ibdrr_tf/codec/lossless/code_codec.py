"""The lossless stage: codes to chains and back.

Images are divided into chains of a fixed number; full ones are coded side by
side, several at once, and the rest is a chain of its own. The coder may be
`BitSwap` or `StaticCoder`. A second, static one may stand beside it: then each
chain is stored in the shorter form, since a chain of few images does not win
back the bits that its first latents read.

Everything runs in graphs: `encode_chains`, `decode_chains` and `decode_chain`
can be mapped over a `tf.data.Dataset` and exported. `compress` and `decompress`
are the same for arrays, with errors that a user can read. Loops and branches
are written out as ops, so tracing leaves AutoGraph, which is slow, aside.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import checks
from ibdrr_tf.codec.lossless import chain
from ibdrr_tf.codec.lossless import planes as planes_module
from ibdrr_tf.errors import UserError

__all__ = ["CodeCodec", "Coder"]

# Places of all grids that are coded at once, unless one image has more. Each
# takes some 40 kB on the way, together less than 1 GB.
_PLACES = 1 << 14
# The same for reading: chains with larger groups were never written.
_MOST_AT_ONCE = 1 << 14
# Places of all grids of one chain. More are decoded only where the chain has at
# least a bit for every code, as all but constant images have.
_MOST_PLACES = 1 << 19
_PLACE_PIXELS = 64
_DAMAGED = (
  "the codes or chains cannot be coded: they are damaged, or come from another "
  "version of the codec; restore them from a copy."
)


class Coder(Protocol):
  """What codes planes; see `BitSwap`."""

  def takes(self, grid: tf.Tensor) -> tf.Tensor:
    """Whether it can code images of a grid, int32 [2]: bool []."""

  def least_bytes(
    self, images: tf.Tensor, grid: tf.Tensor, group: tf.Tensor
  ) -> tf.Tensor:
    """Bytes that a message has at least, int64 [...].

    Args:
      images: int [...], in a message.
      grid: int [..., 2].
      group: int [...], images in a group.
    """

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
    fingerprint: eight bytes that tell the model from any other; a variable,
      where the model may be exchanged.
    top_depth: stages of the top level.
    bottom_depth: stages of the bottom level.
    static: a second coder and its fingerprint, for chains that are shorter
      with it; None codes all chains with the first.
    chain_images: images in a chain: more cost less, fewer can be read alone.
    group: images in a group of a chain; fewer if they are large.
    parallel: chains that are coded side by side; likewise.
    most_places: places of all grids of a chain, beyond which a chain must have
      at least a bit for each code. A short chain could ask for any memory
      otherwise.
  """

  def __init__(
    self,
    coder: Coder,
    fingerprint: bytes | tf.Variable,
    top_depth: int = 1,
    bottom_depth: int = 1,
    *,
    static: tuple[Coder, bytes] | None = None,
    chain_images: int = 1000,
    group: int = 64,
    parallel: int = 16,
    most_places: int = _MOST_PLACES,
  ):
    self._coders = [coder]
    self._known = [fingerprint]
    if static is not None:
      self._coders.append(static[0])
      self._known.append(static[1])
    self._depths = (top_depth, bottom_depth)
    self._planes = len(planes_module.plane_levels(top_depth, bottom_depth))
    self._chain_images = chain_images
    self._group = group
    self._parallel = parallel
    self._most_places = most_places

  @property
  def _fingerprints(self) -> tf.Tensor:
    """Of the models that can be read: string [models]."""
    return tf.stack([tf.convert_to_tensor(name) for name in self._known])

  @property
  def chain_images(self) -> int:
    """Images in a chain that is full."""
    return self._chain_images

  @property
  def most_pixels(self) -> int:
    """Pixels of the images of one chain; see `most_places`."""
    return _PLACE_PIXELS * self._most_places

  def chain_count(self, images: int) -> int:
    """Number of chains of so many images."""
    return -(-images // self._chain_images)

  def compress(
    self, top: np.ndarray, bottom: np.ndarray, first: int = 0
  ) -> list[bytes]:
    """Codes to chains.

    Args:
      top: int [n, h, w, top_depth].
      bottom: int [n, 2h, 2w, bottom_depth].
      first: number of the first chain; those before it are made elsewhere.

    Returns:
      One string a chain; together they hold all images, in order.

    Raises:
      UserError: if the arrays are no codes of this model.
    """
    if np.ndim(top) != 4 or np.ndim(bottom) != 4:
      raise UserError(
        f"the codes have shapes {list(np.shape(top))} and "
        f"{list(np.shape(bottom))}: give [n, h, w, depth] of each level."
      )
    with checks.told(_DAMAGED):
      chains = self.encode_chains(
        tf.constant(top, tf.int32), tf.constant(bottom, tf.int32), first
      )
    return chains.numpy().tolist()

  def decompress(self, chains: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Chains of one grid to codes: the inverse of `compress`.

    Args:
      chains: all of them, or any run of neighbours, in order.

    Raises:
      UserError: if a chain is damaged, out of order, of another model or of a
        newer format.
    """
    with checks.told(_DAMAGED):
      top, bottom = self.decode_chains(_strings(chains))
    return top.numpy(), bottom.numpy()

  def shapes(self, chains: list[bytes]) -> np.ndarray:
    """What chains hold, from their checked headers, without decoding them.

    Args:
      chains: as for `decompress`.

    Returns:
      int [chains, 3]: images, height and width of the grid of each.

    Raises:
      UserError: as `decompress`.
    """
    with checks.told(_DAMAGED):
      opened = self._open(_strings(chains))
    return np.column_stack([opened.images, opened.grid])

  @tf.function(
    autograph=False,
    input_signature=[
      *[tf.TensorSpec([None] * 4, tf.int32)] * 2,
      tf.TensorSpec([], tf.int32),
    ],
  )
  def encode_chains(
    self, top: tf.Tensor, bottom: tf.Tensor, first: tf.Tensor
  ) -> tf.Tensor:
    """Codes, int32 [n, h, w, depth] of each level, to string [chains].

    Args:
      top: of one level.
      bottom: of the other.
      first: number of the first chain, int32.
    """
    with tf.device("/CPU:0"):  # See `decode_chains`.
      planes = self._to_planes(top, bottom)
      count = tf.shape(planes)[0]
      size = tf.clip_by_value(count, 1, self._chain_images)
      full = count // size
      shape = tf.shape(planes)[1:]
      grid = shape[:2]
      group = tf.minimum(self._group, _most(grid))

      def body(start, chains):
        stop = tf.minimum(start + self._side_by_side(group, grid), full)
        block = planes[start * size : stop * size]
        block = tf.reshape(block, tf.concat([[stop - start, size], shape], 0))
        return stop, tf.concat(
          [chains, self._seal(block, group, first + start)], axis=0
        )

      _, chains = tf.while_loop(
        lambda start, _: start < full,
        body,
        [0, tf.constant([], tf.string)],
        shape_invariants=[tf.TensorShape([]), tf.TensorShape([None])],
      )

      def with_rest():
        rest = planes[tf.newaxis, full * size :]
        sealed = self._seal(rest, group, first + full)
        return tf.concat([chains, sealed], axis=0)

      return tf.cond(full * size < count, with_rest, lambda: chains)

  @tf.function(
    autograph=False, input_signature=[tf.TensorSpec([None], tf.string)]
  )
  def decode_chains(self, chains: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """String [chains] to codes, int32 [n, h, w, depth] of each level.

    Raises:
      tf.errors.InvalidArgumentError: see `checks.as_user_error`.
    """
    # Other devices may convolve by transforms, whose sums are not exact.
    with tf.device("/CPU:0"):
      planes = self._decode_all(self._open(chains))
      return planes_module.from_planes(planes, *self._depths)

  @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
  def decode_chain(self, string: tf.Tensor) -> tf.Tensor:
    """One chain to its planes, int32 [n, h, w, planes]; see `planes`."""
    with tf.device("/CPU:0"):
      return self._decode_all(self._open(string[tf.newaxis]))

  def _open(self, chains: tf.Tensor) -> chain.Opened:
    """Opens chains, none of which declares more than its bytes can hold."""
    opened = chain.open_chains(chains, self._planes, self._fingerprints)
    images, group = opened.images, opened.group
    least = tf.stack(
      [coder.least_bytes(images, opened.grid, group) for coder in self._coders],
      axis=1,
    )
    least = tf.gather(least, opened.model, axis=1, batch_dims=1)
    length = tf.cast(tf.strings.length(opened.messages), tf.int64)
    grids = tf.reduce_prod(tf.cast(opened.grid, tf.int64), axis=1)
    places = tf.cast(images, tf.int64) * grids
    takes = [coder.takes(_only_grid(opened.grid)) for coder in self._coders]
    conditions = (
      (
        tf.gather(tf.stack(takes), opened.model)
        & (
          tf.cast(group, tf.int64) * grids <= tf.maximum(grids, _MOST_AT_ONCE)
        ),
        "a chain has larger groups or images than any encoder writes: it is "
        "damaged or forged; restore it from a copy",
      ),
      (
        length >= least,
        "a chain declares more images than its bytes can hold: it is damaged "
        "or forged; restore it from a copy",
      ),
      (
        (places <= self._most_places) | (places * self._planes <= 8 * length),
        f"a chain of few bytes declares more than {self.most_pixels} "
        f"pixels: raise this limit if you trust its origin",
      ),
    )
    return checks.guarded(opened, conditions)

  def _to_planes(self, top: tf.Tensor, bottom: tf.Tensor) -> tf.Tensor:
    """Checks codes and makes planes of them, int32 [n, h, w, planes]."""
    sizes = [tf.shape(level) for level in (top, bottom)]
    wanted = tf.concat(
      [sizes[0][:1], 2 * sizes[0][1:3], self._depths[1:]], axis=0
    )
    fits = tf.reduce_all(sizes[1] == wanted) & (sizes[0][3] == self._depths[0])
    fits &= tf.reduce_all(sizes[0][1:3] > 0)
    conditions = (
      (
        fits,
        "the codes have shapes that do not belong together or to this model",
      ),
      (
        sizes[0][1:3] < 1 << 16,
        "the images are too large: a side has at most 524280 pixels",
      ),
    )
    top, bottom = checks.guarded((top, bottom), conditions)
    shape = [None, None, None]
    return planes_module.to_planes(
      tf.ensure_shape(top, [*shape, self._depths[0]]),
      tf.ensure_shape(bottom, [*shape, self._depths[1]]),
    )

  def _side_by_side(self, group: tf.Tensor, grid: tf.Tensor) -> tf.Tensor:
    """How many chains to code at once, int32 []."""
    return tf.clip_by_value(_most(grid) // group, 1, self._parallel)

  def _seal(
    self, planes: tf.Tensor, group: tf.Tensor, first: tf.Tensor
  ) -> tf.Tensor:
    """Codes int32 [chains, images, h, w, planes]: string [chains]."""

    def coded(model):
      messages, seed = self._coders[model].encode(planes, group)
      return chain.seal(
        messages,
        seed,
        tf.shape(planes)[1:],
        group,
        first,
        self._fingerprints[model],
      )

    grid = tf.shape(planes)[2:4]
    takes = self._coders[0].takes(grid)
    if len(self._coders) == 1:
      planes = checks.guarded(
        planes,
        [(takes, "the images are too large for this model: give smaller ones")],
      )
      return coded(0)
    plain = coded(1)

    def shorter():
      strings = coded(0)
      is_shorter = tf.strings.length(plain) < tf.strings.length(strings)
      return tf.where(is_shorter, plain, strings)

    # Larger images are rare, few of a size, and so no shorter that way.
    takes &= tf.reduce_prod(tf.cast(grid, tf.int64)) <= _PLACES
    return tf.cond(takes, shorter, lambda: plain)

  def _decode_all(self, opened: chain.Opened) -> tf.Tensor:
    """All planes, int32 [n, h, w, planes]; neighbours that are alike at once.

    Chains side by side must have the same number of images and the same coder.
    """
    column = [opened.images, opened.group, opened.model]
    kinds = tf.concat([tf.stack(column, axis=1), opened.grid], axis=1)
    count = tf.shape(kinds)[0]
    grid = _only_grid(opened.grid)
    parts = tf.TensorArray(
      tf.int32, 1, True, infer_shape=False, element_shape=[None] * 4
    )
    nothing = tf.zeros([0, grid[0], grid[1], self._planes], tf.int32)

    def body(start, parts):
      kind = kinds[start]
      most = self._side_by_side(kind[1], grid)
      alike = tf.reduce_all(kinds[start : start + most] == kind, axis=1)
      run = tf.reduce_sum(tf.math.cumprod(tf.cast(alike, tf.int32)))
      stop = start + run
      planes, left = self._decode(kind[2], opened.messages[start:stop], kind)
      planes = chain.ending_with_seed(planes, left, opened.seed[start:stop])
      shape = tf.concat([[-1], tf.shape(planes)[2:]], axis=0)
      planes = tf.reshape(planes, shape)
      return stop, parts.write(parts.size(), planes)

    _, parts = tf.while_loop(
      lambda start, _: start < count, body, [0, parts.write(0, nothing)]
    )
    planes = parts.concat()
    return tf.ensure_shape(planes, [None, None, None, self._planes])

  def _decode(self, model, messages, kind):
    """Decodes with the coder of that number; see `Coder.decode`."""
    images, group, grid = kind[0], kind[1], kind[3:]
    branches = [
      lambda coder=coder: coder.decode(messages, images, grid, group)
      for coder in self._coders
    ]
    if len(branches) == 1:
      return branches[0]()
    return tf.cond(model == 0, *branches)


def _only_grid(grids: tf.Tensor) -> tf.Tensor:
  """The grid that all chains have, int32 [2], out of int32 [chains, 2]."""
  # Without chains there is none.
  return tf.reduce_max(tf.concat([grids, [[0, 0]]], axis=0), axis=0)


def _most(grid: tf.Tensor) -> tf.Tensor:
  """How many images of a grid, int32 [2], to code at once: int32 []."""
  # Sides are below 2^16, so that their product may need more than 31 bits.
  places = tf.reduce_prod(tf.cast(grid, tf.int64))
  most = _PLACES // tf.clip_by_value(places, 1, _PLACES)
  return tf.cast(most, tf.int32)


def _strings(chains: list[bytes]) -> tf.Tensor:
  return tf.constant(chains, tf.string, [len(chains)])
