"""Bit-Swap: codes to byte strings and back, with bits back from the latents.

Section 3.2 of the paper. For each group of images,

    encode: pop z_1 ~ q(z_1 | x)     decode: pull z_L | p(z_L)
            push x | z_1                     …
            pop z_2 ~ q(z_2 | z_1)           pull z_1 | z_2
            push z_1 | z_2                   put z_2 back with q(z_2 | z_1)
            …                                pull x | z_1
            push z_L | p(z_L)                put z_1 back with q(z_1 | x)

A pop reads bits that earlier groups have left, so that a latent costs only
what it adds. The groups of a *chain* lie on one message; the first ones are
small, because there is little to read yet, and grow with what has been written.
Chains are independent: they are coded side by side, and any one can be decoded
alone. Decoding runs through the groups from the last to the first.
"""

from __future__ import annotations

import tensorflow as tf

from ibdrr_tf.codec import checks
from ibdrr_tf.codec.lossless import latents, message, range_coder
from ibdrr_tf.codec.lossless import planes as planes_module
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel

__all__ = ["BitSwap"]

# Bytes at the bottom of a message; what is never read of them is not kept.
_SEED = message.MOST_SEED
# A pop looks at a few bytes more than its values take; see `message`.
_TAIL = 16
# A group may be this share of the images before it: an image reads up to three
# times as many bits as it leaves, when its latents hold more than its codes.
_FEED = 3
# A string may be shorter than what its symbols hold by its last zeros, which
# are left out: by this many bytes once in 2^64 times.
_LUCK = 8
_IMPOSSIBLE = (
  "a chain holds latents that no encoder writes: it is damaged or forged; "
  "restore it from a copy"
)


class BitSwap:
  """The coder of a model.

  Args:
    model: a trained one; its integers are used as they are.
  """

  def __init__(self, model: BitSwapModel):
    self._model = model
    tables = latents.make_tables()
    self._tables = tables
    self._lookup = tf.constant(range_coder.make_lookup(tables.cumulative))
    self._least_bits = range_coder.least_bits(tables.cumulative)
    self._codes = [
      tf.constant(tree.argsort(), tf.int32) for tree in model.trees
    ]

  def takes(self, grid: tf.Tensor) -> tf.Tensor:
    """Whether the seed can feed an image of that grid, int32 [2]: bool [].

    The first image of a chain may read all its latents from the seed, if its
    codes leave next to nothing: up to two bytes each, by tables of 16 bits.
    """
    # The grid's sides are below 2^16: their product may have 32 bits.
    places = tf.reduce_prod(tf.cast(self._model.latent_grid(grid), tf.int64))
    numbers = places * self._model.latent_channels * self._model.latents
    return 2 * numbers <= _SEED - _TAIL

  def least_bytes(
    self, images: tf.Tensor, grid: tf.Tensor, group: tf.Tensor
  ) -> tf.Tensor:
    """Length that no message of so many images is below; see `Coder`.

    Every push writes its length. Without latents nothing is read back, so that
    every decision costs what the likeliest one does, or more.
    """
    model = self._model
    images, group = tf.cast(images, tf.int64), tf.cast(group, tf.int64)
    least = 2 * (model.latents + 1) * -(-images // group)
    if model.latents:
      return least
    bits = self._least_bits[: self._tables.posterior].min()
    bits *= sum(model.bits[level].shape[1] for level in model.levels)
    places = tf.reduce_prod(tf.cast(grid, tf.int64), axis=-1)
    coded = tf.cast(images * places, tf.float64) * (bits / 8)
    return tf.maximum(least, tf.cast(coded, tf.int64) - _LUCK)

  @tf.function(
    autograph=False,  # Loops are written out as ops; converting takes longer.
    input_signature=[
      tf.TensorSpec([None] * 5, tf.int32),
      tf.TensorSpec([], tf.int32),
    ],
  )
  def encode(
    self, planes: tf.Tensor, group: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Codes chains of images.

    Args:
      planes: int32 [chains, images, h, w, planes].
      group: int32 [], images in a group once a chain is under way.

    Returns:
      messages, string [chains], and int32 [chains]: how many bytes of the seed
      are still at the bottom of each.
    """
    chains = tf.shape(planes)[0]
    codes = [len(self._model.trees[level]) for level in self._model.levels]
    planes = planes_module.known(planes, codes)
    sizes = _group_sizes(tf.shape(planes)[1], group)
    starts = tf.cumsum(sizes, exclusive=True)

    def body(number, messages, untouched):
      start = starts[number]
      part = planes[:, start : start + sizes[number]]
      messages, untouched = self._encode_group(part, messages, untouched)
      return number + 1, messages, untouched

    _, messages, untouched = tf.while_loop(
      lambda number, *_: number < tf.shape(sizes)[0],
      body,
      [
        0,
        tf.repeat(message.seed_bytes(_SEED), chains),
        tf.fill([chains], _SEED),
      ],
      shape_invariants=[
        tf.TensorShape([]),
        tf.TensorShape([None]),
        tf.TensorShape([None]),
      ],
    )
    kept = tf.strings.length(messages) - untouched
    messages = tf.strings.substr(messages, tf.zeros_like(kept), kept)
    return messages, _SEED - untouched

  @tf.function(
    autograph=False,  # Loops are written out as ops; converting takes longer.
    input_signature=[
      tf.TensorSpec([None], tf.string),
      tf.TensorSpec([], tf.int32),
      tf.TensorSpec([2], tf.int32),
      tf.TensorSpec([], tf.int32),
    ],
  )
  def decode(
    self,
    messages: tf.Tensor,
    images: tf.Tensor,
    grid: tf.Tensor,
    group: tf.Tensor,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes chains of equally many images.

    Args:
      messages: string [chains].
      images: int32 [], in each of them.
      grid: int32 [2], height and width of the planes.
      group: int32 [], as it was in encoding.

    Returns:
      planes, int32 [chains, images, h, w, planes], and what is left of the
      messages, string [chains]: the beginning of the seed, if all is well.
    """
    sizes = _group_sizes(images, group)
    number = tf.shape(sizes)[0]
    parts = tf.TensorArray(
      tf.int32, number, infer_shape=False, element_shape=[None] * 5
    )

    def body(group, messages, parts):
      planes, messages = self._decode_group(messages, sizes[group], grid)
      return group - 1, messages, parts.write(group, planes)

    _, messages, parts = tf.while_loop(
      lambda group, *_: group >= 0,
      body,
      [number - 1, messages, parts],
      shape_invariants=[
        tf.TensorShape([]),
        tf.TensorShape([None]),
        tf.TensorShape(None),
      ],
    )
    # TensorArray joins along the first axis: images lead while it does.
    return tf.transpose(parts.concat(), [1, 0, 2, 3, 4]), messages

  def _encode_group(self, group, messages, untouched):
    """Codes images, int32 [chains, size, h, w, planes], onto messages."""
    model = self._model
    planes = tf.reshape(group, tf.concat([[-1], tf.shape(group)[2:]], axis=0))
    planes = tf.ensure_shape(planes, [None, None, None, len(model.levels)])
    embedded = model.embed(planes)
    if not model.latents:
      return self._push_codes(messages, None, planes, embedded), untouched
    below = None
    for number in range(model.latents):
      q = model.posterior(number, embedded if below is None else below)
      messages, latent, left = self._pop(messages, q)
      untouched = tf.minimum(untouched, left)
      if below is None:
        messages = self._push_codes(messages, latent, planes, embedded)
      else:
        p = model.prior(number - 1, latent)
        messages = self._push_latent(messages, p, below)
      below = latent
    return self._push_latent(messages, latents.prior(below), below), untouched

  def _decode_group(self, messages, size, grid):
    """Takes a group off; gives it as [size, chains, h, w, planes]."""
    model = self._model
    chains = tf.shape(messages)[0]
    above = None
    if model.latents:
      height, width = tf.unstack(model.latent_grid(grid))
      shape = tf.stack([chains * size, height, width, model.latent_channels])
      above, messages = self._pull_latent(
        messages, latents.prior(tf.zeros(shape))
      )
    for number in range(model.latents - 1, 0, -1):
      latent, messages = self._pull_latent(
        messages, model.prior(number - 1, above)
      )
      q = model.posterior(number, latent)
      messages = self._unpop(messages, q, above)
      above = latent
    planes, embedded, messages = self._pull_codes(
      messages, above, chains * size, grid
    )
    if model.latents:
      messages = self._unpop(messages, model.posterior(0, embedded), above)
    planes = tf.reshape(
      planes, [chains, size, grid[0], grid[1], len(model.levels)]
    )
    return tf.transpose(planes, [1, 0, 2, 3, 4]), messages

  def _pop(self, messages, distribution):
    whole, index = self._indices(messages, distribution, self._tables.posterior)
    value = range_coder.decode(messages, index, self._lookup)
    strings = range_coder.encode(index, value, self._lookup)
    left = tf.strings.length(messages) - tf.strings.length(strings) - 2
    offset = tf.reshape(value, tf.shape(whole)) - self._tables.posterior_reach
    latent = tf.cast(whole + offset, tf.float32)
    return message.finish_pop(messages, strings), latent, left

  def _unpop(self, messages, distribution, latent):
    tables = self._tables
    return message.unpop(
      messages,
      self._encode_latent(
        messages, distribution, latent, tables.posterior, tables.posterior_reach
      ),
    )

  def _push_latent(self, messages, distribution, latent):
    tables = self._tables
    return message.push(
      messages,
      self._encode_latent(
        messages, distribution, latent, tables.prior, tables.prior_reach
      ),
    )

  def _encode_latent(self, messages, distribution, latent, first, reach):
    """Latents as strings, one for each message."""
    whole, index = self._indices(messages, distribution, first)
    value = tf.cast(latent, tf.int32) - whole + reach
    value = tf.reshape(value, tf.shape(index))
    # The coder does not look: other values would be written wrong.
    value = checks.guarded(
      value, [((value >= 0) & (value <= 2 * reach), _IMPOSSIBLE)]
    )
    return range_coder.encode(index, value, self._lookup)

  def _pull_latent(self, messages, distribution):
    whole, index = self._indices(messages, distribution, self._tables.prior)
    strings, messages = message.pull(messages)
    bits = tf.gather(tf.constant(self._least_bits, tf.float32), index)
    least = 0.999 * tf.reduce_sum(bits, axis=1) / 8 - _LUCK
    length = tf.cast(tf.strings.length(strings), tf.float32)
    strings = checks.guarded(strings, [(length >= least, _IMPOSSIBLE)])
    value = range_coder.decode(strings, index, self._lookup)
    offset = tf.reshape(value, tf.shape(whole)) - self._tables.prior_reach
    return tf.cast(whole + offset, tf.float32), messages

  def _indices(self, messages, distribution, first):
    """Whole parts [n, h, w, c] and tables, int32 [chains, symbols]."""
    whole, table = distribution.bins()
    return whole, tf.reshape(first + table, [tf.shape(messages)[0], -1])

  def _push_codes(self, messages, latent, planes, embedded):
    """Pushes all planes as one string, decision after decision."""
    model = self._model
    features = model.features_of_known(latent, embedded)
    tables = [model.decision_table(level) for level in range(len(model.trees))]
    indices, values = [], []
    chains = tf.shape(messages)[0]
    one_by_one = tf.unstack(planes, axis=3)
    for k, level in enumerate(model.levels):
      codes = one_by_one[k]
      nodes = tf.gather(model.nodes[level], codes)
      odds = tables[level].log_odds(features[k], nodes)
      blank = model.surely_blank(one_by_one, k)
      if blank is not None:
        certain = model.certain_odds(level)
        odds = tf.where(blank[..., tf.newaxis], certain, odds)
      indices.append(self._by_decision(_bernoulli(odds), chains))
      bits = tf.gather(model.bits[level], codes)
      values.append(self._by_decision(bits, chains))
    strings = range_coder.encode(
      tf.concat(indices, axis=1), tf.concat(values, axis=1), self._lookup
    )
    return message.push(messages, strings)

  def _by_decision(self, values, chains):
    """[chains · size, h, w, depth] to [chains, depth · size · h · w]."""
    depth = values.shape[-1]
    values = tf.reshape(values, [chains, -1, depth])
    return tf.reshape(tf.transpose(values, [0, 2, 1]), [chains, -1])

  def _pull_codes(self, messages, latent, count, grid):
    """Pulls planes; gives them, their embeddings and the messages below."""
    model = self._model
    strings, messages = message.pull(messages)
    handle = range_coder.start_decoding(strings, self._lookup)
    context = model.start_context(latent, count, grid)
    planes, embedded = [], []
    tables = [model.decision_table(level) for level in range(len(model.trees))]
    for k, level in enumerate(model.levels):
      features = model.features(context, k)
      handle, leaf = self._pull_leaves(
        handle, features, level, tables[level], model.surely_blank(planes, k)
      )
      codes = tf.gather(self._codes[level], leaf)
      planes.append(codes)
      embedded.append(model.embeddings[level](codes))
      if k < len(model.context):
        context = model.add_context(context, k, embedded[k])
    return tf.stack(planes, axis=-1), embedded, messages

  def _pull_leaves(self, handle, features, level, table, blank):
    """Walks a plane's codes down their tree; gives the leaves, [n, h, w]."""
    leaves, depth = self._model.bits[level].shape
    certain = self._model.certain_odds(level)

    def body(step, handle, node):
      odds = table.log_odds(features, node[..., tf.newaxis])
      if blank is not None:
        odds = tf.where(blank[..., tf.newaxis], certain[step], odds)
      index = tf.reshape(_bernoulli(odds), [tf.shape(handle)[0], -1])
      handle, bits = range_coder.decode_next(handle, index)
      return step + 1, handle, 2 * node + 1 + tf.reshape(bits, tf.shape(node))

    root = tf.zeros(tf.shape(features)[:-1], tf.int32)
    # A loop, because the steps written out would be most of the graph.
    _, handle, node = tf.while_loop(
      lambda step, *_: step < depth, body, [0, handle, root]
    )
    return handle, node - (leaves - 1)


def _ramp() -> list[int]:
  """Sizes of the first groups, each fed by those before it."""
  sizes = []
  while not sizes or sizes[-1] < 1 << 12:
    sizes.append(max(1, sum(sizes) // _FEED))
  return sizes


def _group_sizes(images: tf.Tensor, group: tf.Tensor) -> tf.Tensor:
  """1, 1, … 2, 2, 3, 4, 5, 7 … up to the full group; the last is the rest."""
  full = tf.fill([images // group + 1], group)
  sizes = tf.concat([tf.minimum(_ramp(), group), full], axis=0)
  ends = tf.minimum(tf.cumsum(sizes), images)
  sizes = ends - tf.concat([[0], ends[:-1]], axis=0)
  return tf.boolean_mask(sizes, sizes > 0)


def _bernoulli(odds: tf.Tensor) -> tf.Tensor:
  """Numbers of the tables of decisions with these log-odds."""
  return tf.cast(odds, tf.int32) + latents.BERNOULLI_REACH
