"""From chains on the disk to training batches: replay beyond the RAM.

    blocks, in a new order ─► read ─► Bit-Swap ─► shuffle buffer ─► batch
    new images' codes in RAM, cut into blocks ──────────┘

A block is a chain of some thousand images, or as many of the new images. RAM
holds labels, the new images' codes, a few blocks and the shuffle buffer, so the
old codes may be of any size. Chains are decoded once an epoch; the VQ decoder
runs in the training step, as in `CodeFeed` with `cache="codes"`.

The order of blocks, the draws from the buffer and the crops are functions of
(seed, epoch). A training that was interrupted goes on with the same batches.
"""

import os
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.tuning import untuned
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.code_blocks import CodeBlocks
from ibdrr_tf.replay.codec import decode_codes
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.feeds import Feed

__all__ = ["StreamFeed"]

_BUFFER_IMAGES = 20_000
_BLOCK_IMAGES = 1_000
# Blocks that are decoded at the same time: each takes some 50 MB on the way.
_DECODERS = min(os.cpu_count() or 1, 4)
_fold_in = tf.random.experimental.stateless_fold_in


class StreamFeed(Feed):
  """Examples that are remembered as chains on the disk.

  Examples are numbered as in a `CodeFeed` of the same codes: those on the disk
  first, without images that only test, then the new ones.

  Workers divide each epoch's stream of images into equal parts: each worker
  decodes the blocks of its own part. Where a part begins or ends within a
  block, two workers decode this block, and each gives its own images of it. So
  all workers together give every image exactly once an epoch, in as many steps
  as a `CodeFeed` does.

  Args:
    blocks: the chains on the disk; None if there are none.
    new: codes that are in RAM; may be empty, but has the shape of all codes.
    vqvae: decodes codes to images.
    image_size: height and width to which reconstructions are cut.
    ram_bytes: the shuffle buffer takes at most half of it, and 20,000 images.
    **options: of `Feed`.
  """

  def __init__(
    self,
    blocks: CodeBlocks | None,
    new: Codes,
    vqvae: HierarchicalVQVAE,
    image_size: tuple[int, int],
    *,
    ram_bytes: int,
    **options: Any,
  ):
    labels, sources, offsets, counts = [], [], [], []
    for number in range(len(blocks) if blocks else 0):
      rows = blocks.rows(number)
      kept = blocks.labels[rows][~blocks.held_out[rows]]
      if len(kept):  # No chain of images that only test need be decoded.
        labels.append(kept)
        sources.append(number)
        offsets.append(rows.start)
        counts.append(len(kept))
    size = blocks.chain_images if blocks else _BLOCK_IMAGES
    for start in range(0, len(new), size):
      sources.append(-1)
      offsets.append(start)
      counts.append(min(size, len(new) - start))
    super().__init__(
      np.concatenate([*labels, new.labels]), image_size, **options
    )
    self._blocks = blocks
    self._vqvae = vqvae
    self._new = new
    # For each block: its chain, or -1 in RAM; its first image there; and how
    # many examples it has.
    self._sources, self._offsets, self._counts = (
      np.array(column, np.int64) for column in (sources, offsets, counts)
    )
    codes = sum(int(np.prod(a.shape[1:])) for a in (new.top, new.bottom))
    self._buffer = min(_BUFFER_IMAGES, ram_bytes // 2 // (2 * codes))

  @property
  def failure(self) -> UserError | None:
    """Names the file of a chain that could not be read; see `Feed`."""
    return self._blocks.failure if self._blocks else None

  def training_batches(
    self,
    *,
    batch_size: int,
    epochs: range,
    seed: tf.Tensor,
    augment: Augmentation,
    share: stream.Share = stream.WHOLE,
  ) -> tf.data.Dataset:
    """Batches for `prepare`; see `Feed`."""
    stops = stream.batch_stops(len(self), batch_size, share.replicas)
    sizes = np.diff(share.parts(stops), axis=1)[:, 0]
    first = _before(share, stops)
    span = (first, first + int(sizes.sum()))
    with tf.device("/CPU:0"):
      labels = tf.constant(self.labels)
      tables = self._tables()

    def epoch_batches(epoch: tf.Tensor) -> tf.data.Dataset:
      key = _fold_in(seed, epoch)
      order = stream.shuffled(len(self._counts), seed, epoch)
      pieces, count = self._pieces(order, span)
      decoded = pieces.map(self._read).map(
        lambda *piece: self._decode(tables, augment, key, *piece),
        num_parallel_calls=_DECODERS,
        deterministic=True,
      )
      return self._mixed(decoded, count, key).rebatch(sizes)

    def batch(numbers, drawn, top, bottom) -> tuple:
      inputs = {"top": top, "bottom": bottom, "drawn": drawn}
      if self._twins:
        inputs |= self._read_twins(numbers)
      return inputs, tf.gather(labels, numbers)

    numbers = tf.data.Dataset.range(epochs.start, epochs.stop)
    return (
      untuned(numbers.flat_map(epoch_batches))
      .map(batch, num_parallel_calls=tf.data.AUTOTUNE)
      .prefetch(tf.data.AUTOTUNE)
    )

  def _tables(self) -> dict[str, tf.Tensor]:
    """What a graph needs to know of all blocks, and the new codes."""
    none = np.zeros(0, bool)
    arrays = {
      "first": np.cumsum(self._counts) - self._counts,
      "count": self._counts,
      "source": self._sources,
      "offset": self._offsets,
      "images": self._blocks.counts if self._blocks else self._counts[:0],
      "held_out": self._blocks.held_out if self._blocks else none,
      "top": self._new.top,
      "bottom": self._new.bottom,
    }
    return {name: tf.constant(values) for name, values in arrays.items()}

  def _pieces(
    self, order: tf.Tensor, span: tuple[int, int]
  ) -> tuple[tf.data.Dataset, tf.Tensor]:
    """The blocks of a part of an epoch's stream of images.

    Args:
      order: of the blocks, int64 [blocks].
      span: where the part begins and ends in the stream.

    Returns:
      A data set of (block, first and last + 1 of the examples to take from it),
      and their number.
    """
    counts = tf.gather(self._counts, order)
    starts = tf.cumsum(counts, exclusive=True)
    begins, ends = (tf.clip_by_value(p - starts, 0, counts) for p in span)
    mine = tf.where(ends > begins)[:, 0]
    columns = tuple(tf.gather(c, mine) for c in (order, begins, ends))
    return tf.data.Dataset.from_tensor_slices(columns), tf.size(mine, tf.int64)

  def _read(self, block, begin, end) -> tuple:
    """Adds the chain of a block; the empty string for new images."""
    source = tf.gather(self._sources, block)
    chain = tf.constant("")
    if self._blocks:
      chain = tf.cond(
        source >= 0,
        lambda: self._blocks.read_in_graph(source),
        lambda: tf.constant(""),
      )
    return block, begin, end, chain

  def _decode(self, tables, augment, key, block, begin, end, chain) -> tuple:
    """Numbers, draws and codes of the examples that a piece has."""
    count = tables["count"][block]
    source, offset = tables["source"][block], tables["offset"][block]

    def from_ram():
      rows = slice(offset, offset + count)
      return tables["top"][rows], tables["bottom"][rows]

    def from_chain():
      images = tables["images"][source]
      kept = ~tables["held_out"][offset : offset + images]
      levels = self._blocks.decode(chain)
      return tuple(tf.boolean_mask(level, kept) for level in levels)

    if self._blocks:
      levels = tf.cond(source >= 0, from_chain, from_ram)
    else:
      levels = from_ram()
    top, bottom = (
      tf.ensure_shape(level, [None, *stored.shape[1:]])
      for level, stored in zip(
        levels, (self._new.top, self._new.bottom), strict=True
      )
    )
    numbers = tables["first"][block] + tf.range(count)
    drawn = self._draw(tf.cast(count, tf.int32), augment, _fold_in(key, block))
    return tuple(v[begin:end] for v in (numbers, drawn, top, bottom))

  def _mixed(
    self, decoded: tf.data.Dataset, count: tf.Tensor, key: tf.Tensor
  ) -> tf.data.Dataset:
    """A shuffle buffer: each block that comes in sends as many images out.

    Images that leave are drawn from the buffer and the block alike. The last
    block sends out everything. Whole blocks move at once, which costs a small
    part of what decoding them does.
    """
    key = _fold_in(key, len(self._counts))  # Blocks have smaller numbers.

    def exchange(state, images):
      number, buffer = state
      pool = [
        tf.concat(pair, axis=0) for pair in zip(buffer, images, strict=True)
      ]
      size = tf.shape(pool[0])[0]
      order = tf.random.experimental.stateless_shuffle(
        tf.range(size), _fold_in(key, number)
      )
      is_last = number == count - 1
      leaving = tf.where(is_last, size, tf.maximum(size - self._buffer, 0))
      sent, kept = (
        tuple(tf.gather(values, rows) for values in pool)
        for rows in (order[:leaving], order[leaving:])
      )
      return (number + 1, kept), sent

    empty = tuple(
      tf.zeros([0, *spec.shape[1:]], spec.dtype)
      for spec in decoded.element_spec
    )
    mixed = decoded.scan((tf.constant(0, tf.int64), empty), exchange)
    return mixed.filter(lambda numbers, *_: tf.size(numbers) > 0)

  def _stored(self) -> dict[str, np.ndarray]:
    """Nothing by example: codes are read block by block."""
    return {}

  def _images(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    return decode_codes(
      self._vqvae, inputs["top"], inputs["bottom"], self._image_size
    )


def _before(share: stream.Share, stops: np.ndarray) -> int:
  """How many images of an epoch the replicas before this process have."""
  others = stream.Share(share.replicas, range(share.mine.start))
  return int(np.diff(others.parts(stops), axis=1).sum())
