"""The model behind Bit-Swap: codes, and a Markov chain of latents above them.

    z_L ─► … ─► z_2 ─► z_1 ─► codes        generative, p
    z_L ◄─ … ◄─ z_2 ◄─ z_1 ◄─ codes        inference, q

The codes of both levels are planes on one grid (see `planes`), drawn one plane
after the other: p(plane_k | planes before k, z_1). Given z_1 and those planes,
the codes of a plane are independent, each a path through the tree of its
codebook (see `code_tree`). All networks are integer (see `integer`).

Without latents this is a plain autoregressive model of planes. Where codes may
be blank (see `quantizer`), a place that left out a stage leaves out all later
ones, and their decisions are certain.
"""

from __future__ import annotations

import collections
import math

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import noise
from ibdrr_tf.codec.lossless import code_tree, integer, latents
from ibdrr_tf.codec.lossless import planes as planes_module
from ibdrr_tf.codec.lossless.decisions import DecisionTable
from ibdrr_tf.codec.lossless.integer import IntegerConv, IntegerTable, activate

__all__ = ["BitSwapModel"]


class BitSwapModel(tf.keras.Model):
  """Gives every distribution that the coder needs, in integers.

  Training minimises the negative ELBO (equation 5), in bits a code: the length
  that bits-back coding reaches.

  Args:
    trees: for each codebook (the top's stages, then the bottom's), int
      [codes], the leaf of each code, see `code_tree.make_tree`.
    top_depth: stages of the top level.
    bottom_depth: stages of the bottom level.
    latents: number of latents in the chain, L; 0 has none.
    latent_channels: of each latent, at every position of its grid.
    latent_stride: codes along each side of a latent's position, a power of 2;
      at 1 the latents have the grid of the planes.
    width: channels of the likelihood's network.
    blocks: residual blocks in it.
    embedding: channels of a code.
    latent_kernel: side of the convolutions between latents. Where images have
      one position of latents, the outer weights of larger ones never learn.
    blank: whether code 0 of the bottom's later stages is blank.
    seed: of the noise in training.
  """

  def __init__(
    self,
    trees: list[np.ndarray],
    top_depth: int = 1,
    bottom_depth: int = 1,
    latents: int = 2,
    latent_channels: int = 4,
    latent_stride: int = 1,
    width: int = 64,
    blocks: int = 2,
    embedding: int = 24,
    latent_kernel: int = 3,
    blank: bool = False,
    seed: int = 0,
    **kwargs,
  ):
    super().__init__(**kwargs)
    self._config = {
      "top_depth": top_depth,
      "bottom_depth": bottom_depth,
      "latents": latents,
      "latent_channels": latent_channels,
      "latent_stride": latent_stride,
      "width": width,
      "blocks": blocks,
      "embedding": embedding,
      "seed": seed,
    }
    # Models of the first version have no such words in their files.
    if latent_kernel != 3:
      self._config["latent_kernel"] = latent_kernel
    if blank:
      self._config["blank"] = True
    self.trees = [np.asarray(tree, np.int32) for tree in trees]
    self.levels = planes_module.plane_levels(top_depth, bottom_depth)
    paths = [code_tree.bits_of_codes(tree) for tree in self.trees]
    self.nodes = [tf.constant(nodes) for nodes, _ in paths]
    self.bits = [tf.constant(bits) for _, bits in paths]
    self._make_layers(self._config)
    self.bits_metric = tf.keras.metrics.Mean(name="bits_per_code")
    self.latent_metric = tf.keras.metrics.Mean(name="latent_bits")
    # Variables, so that one graph serves several trainings; see `restart`.
    self.step = tf.Variable(0, dtype=tf.int64, trainable=False)
    self.noise_seed = tf.Variable(seed, dtype=tf.int64, trainable=False)
    self.latent_warmup = tf.Variable(0.0, trainable=False)
    self.elbo_bits(tf.zeros([1, 2, 2, len(self.levels)], tf.int32))

  def _make_layers(self, config: dict) -> None:
    width, planes = config["width"], len(self.levels)
    self.embeddings = [
      IntegerTable(len(tree), config["embedding"]) for tree in self.trees
    ]
    # Each plane's share in what is known about the later ones.
    self.context = [
      IntegerConv(width, 3, gain=0.5, name=f"context_{k}")
      for k in range(planes - 1)
    ]
    self.from_latent = [
      IntegerConv(width, 3, gain=0.5, name="from_latent")
      for _ in range(min(config["latents"], 1))
    ]
    self.plane_bias = IntegerTable(planes, width, deviation=0.3)
    self.blocks = [
      (
        IntegerConv(width, 3, name=f"block_{b}_a"),
        IntegerConv(width, 3, gain=0.3, name=f"block_{b}_b"),
      )
      for b in range(config["blocks"])
    ]
    unit = integer.WEIGHT_UNIT
    self.decisions = [
      IntegerTable(len(tree) - 1, width, unit=unit, deviation=0.02)
      for tree in self.trees
    ]
    self.decision_bias = [
      IntegerTable(len(tree) - 1, 1, deviation=0.01) for tree in self.trees
    ]
    if config["latents"]:
      self._make_latents(planes, config)
    else:
      self.infer_codes, self.infer, self.generate = [], [], []

  def _make_latents(self, planes: int, config: dict) -> None:
    width, channels = config["width"], config["latent_channels"]
    size = config.get("latent_kernel", 3)
    self.infer_codes = [
      IntegerConv(width, 1, gain=0.5, name=f"infer_codes_{k}")
      for k in range(planes)
    ]
    for conv in self.infer_codes:
      # They are never called one by one, which is when Keras builds layers.
      conv.build(tf.TensorShape([None, None, None, config["embedding"]]))
    self.infer = [_head(width, channels, size, f"infer_{1}")]
    self.generate = []
    for number in range(1, config["latents"]):
      half = width // 2
      self.infer.append(_head(half, channels, size, f"infer_{number + 1}"))
      self.generate.append(_head(half, channels, size, f"generate_{number}"))

  @property
  def latents(self) -> int:
    """Number of latents in the chain, L."""
    return self._config["latents"]

  @property
  def latent_channels(self) -> int:
    """Channels of each latent."""
    return self._config["latent_channels"]

  def latent_grid(self, grid: tf.Tensor) -> tf.Tensor:
    """Height and width of the latents, int32 [2], from those of the planes."""
    stride = self._config["latent_stride"]
    return (tf.convert_to_tensor(grid) + stride - 1) // stride

  @property
  def metrics(self) -> list[tf.keras.metrics.Metric]:
    """Bits a code: all of them, and the latents' share."""
    return [self.bits_metric, self.latent_metric]

  def get_config(self) -> dict:
    """The constructor's arguments, but for the trees."""
    return dict(self._config)

  def integer_layers(self) -> list[IntegerConv | IntegerTable]:
    """All layers that have weights, in a fixed order."""
    groups = (
      self.embeddings,
      self.context,
      [*self.from_latent, self.plane_bias],
      [layer for block in self.blocks for layer in block],
      self.decisions,
      self.decision_bias,
      self.infer_codes,
      [layer for head in self.infer for layer in head],
      [layer for head in self.generate for layer in head],
    )
    return [layer for group in groups for layer in group]

  def check_exact(self) -> None:
    """Refuses weights of which any sum that is ever taken might be inexact."""
    # A bias of a plane, or an activation, may be added to a sum.
    more = integer.ACTIVATION_MAX * integer.WEIGHT_UNIT
    joined = {
      "context": [*self.context, *self.from_latent],
      "infer_codes": self.infer_codes,
    }
    known = {id(conv) for convs in joined.values() for conv in convs}
    for layer in self.integer_layers():
      if isinstance(layer, IntegerConv) and id(layer) not in known:
        joined[layer.name] = [layer]
    for name, convs in joined.items():
      if not convs:
        continue
      integer.check_exact(name, sum(conv.bound() for conv in convs) + more)
    for table in self.decisions:
      sums = np.abs(table.integers().numpy().astype("f8")).sum(axis=1)
      integer.check_exact("decisions", integer.ACTIVATION_MAX * sums + more)

  def embed(self, planes: tf.Tensor) -> list[tf.Tensor]:
    """Codes, int32 [n, h, w, planes], as integer vectors, plane by plane."""
    return [
      embedded
      for level, members in self._planes_by_level()
      for embedded in tf.unstack(
        self.embeddings[level](planes[..., members]), axis=3
      )
    ]

  def _planes_by_level(self) -> list[tuple[int, slice]]:
    """Which planes come from each codebook."""
    return [
      (level, slice(self.levels.index(level), self.levels.index(level) + count))
      for level, count in sorted(collections.Counter(self.levels).items())
    ]

  def posterior(
    self, number: int, below: tf.Tensor | list[tf.Tensor]
  ) -> latents.Distribution:
    """q(z_1 | codes) from embedded planes, or q(z_{number+1} | z_number)."""
    if number == 0:
      total = integer.sum_of_all(self.infer_codes, below)
      hidden = _shrink(activate(total), self._config["latent_stride"])
      return _apply_head(self.infer[0], hidden)
    return _apply_head(self.infer[number], latents.to_activation(below))

  def prior(self, number: int, above: tf.Tensor) -> latents.Distribution:
    """p(z_{number+1} | z_{number+2})."""
    return _apply_head(self.generate[number], latents.to_activation(above))

  def start_context(
    self, latent: tf.Tensor | None, count: tf.Tensor, grid: tf.Tensor
  ) -> tf.Tensor:
    """What z_1 says about all planes: sums [n, h, w, width].

    Args:
      latent: z_1, or None where there is none.
      count: number of images, int32 [].
      grid: int32 [2], height and width of the planes.
    """
    if latent is None:
      shape = tf.stack([count, grid[0], grid[1], self._config["width"]])
      return tf.zeros(shape)
    stride = self._config["latent_stride"]
    known = latents.to_activation(latent)
    if stride > 1:
      known = tf.repeat(tf.repeat(known, stride, axis=1), stride, axis=2)
      known = known[:, : grid[0], : grid[1]]
    return self.from_latent[0](known)

  def add_context(
    self, context: tf.Tensor, plane: int, embedded: tf.Tensor
  ) -> tf.Tensor:
    """Adds what a plane says about those after it."""
    return context + self.context[plane](embedded)

  def features(self, context: tf.Tensor, plane: int) -> tf.Tensor:
    """Features of a plane's decisions: activations [n, h, w, width]."""
    bias = self.plane_bias.integers()[plane] * integer.WEIGHT_UNIT
    return self._refine(context + bias)

  def features_of_known(
    self, latent: tf.Tensor | None, embedded: list[tf.Tensor]
  ) -> tf.Tensor:
    """Features of all planes, where all are known: [planes, n, h, w, width].

    The planes pass the network as one batch. One after the other, as a decoder
    must, they would make a graph that takes longer to build than to run.
    """
    shape = tf.shape(embedded[0])
    start = self.start_context(latent, shape[0], shape[1:3])
    known = [
      conv(e) for conv, e in zip(self.context, embedded[:-1], strict=True)
    ]
    contexts = tf.cumsum(tf.stack([start, *known]), axis=0)
    biases = self.plane_bias.integers() * integer.WEIGHT_UNIT
    contexts += biases[:, tf.newaxis, tf.newaxis, tf.newaxis]
    shape = tf.shape(contexts)
    batch = tf.reshape(contexts, [-1, shape[2], shape[3], contexts.shape[-1]])
    return tf.reshape(self._refine(batch), shape)

  def _refine(self, total: tf.Tensor) -> tf.Tensor:
    """Residual blocks over sums [n, h, w, width]."""
    hidden = activate(total)
    for first, second in self.blocks:
      inner = activate(first(hidden))
      hidden = activate(second(inner) + hidden * integer.WEIGHT_UNIT)
    return hidden

  def decision_table(self, level: int) -> DecisionTable:
    """The decisions of a codebook's tree."""
    return DecisionTable(
      self.decisions[level].integers(),
      self.decision_bias[level].integers()[:, 0] * integer.WEIGHT_UNIT,
    )

  def certain_odds(self, level: int) -> tf.Tensor:
    """Log-odds of the decisions that lead to a blank code: float32 [depth]."""
    bits = tf.cast(self.bits[level][0], tf.float32)
    return (2.0 * bits - 1.0) * latents.BERNOULLI_REACH

  def surely_blank(
    self, planes: list[tf.Tensor], number: int
  ) -> tf.Tensor | None:
    """Where the codes of a plane can only be blank.

    Args:
      planes: those before it, each int32 [...].
      number: of the plane.

    Returns:
      bool [...], or None where nothing is sure. The first two stages are never:
      the second is the first that may be left out.
    """
    first = self._config["top_depth"] + 2 * planes_module.PHASES
    if not self._config.get("blank") or number < first:
      return None
    return tf.equal(planes[number - planes_module.PHASES], 0)

  def _code_bits(
    self, features: tf.Tensor, level: int, codes: tf.Tensor
  ) -> tf.Tensor:
    """-log2 p of codes, int32 [m], with features [m, width]: float32 [m]."""
    table = self.decision_table(level)
    # All nodes by one product, of which each code takes its own.
    totals = tf.matmul(features, table.weights, transpose_b=True)
    nodes = tf.gather(self.nodes[level], codes)
    total = tf.gather(totals, nodes, batch_dims=1)
    odds = table.to_odds(total, nodes) / 16.0
    bits = tf.cast(tf.gather(self.bits[level], codes), tf.float32)
    loss = tf.nn.sigmoid_cross_entropy_with_logits(bits, odds)
    return tf.reduce_sum(loss, axis=-1) / math.log(2.0)

  def _all_code_bits(self, features: tf.Tensor, planes: tf.Tensor) -> tf.Tensor:
    """-log2 p of all codes of each image, [n]; planes [n, h, w, planes]."""
    width = features.shape[-1]
    bits = 0.0
    for level, members in self._planes_by_level():
      codes = tf.transpose(planes[..., members], [3, 0, 1, 2])
      of_codes = self._code_bits(
        tf.reshape(features[members], [-1, width]),
        level,
        tf.reshape(codes, [-1]),
      )
      of_codes = tf.reshape(of_codes, tf.shape(codes))
      blank = [
        self.surely_blank(tf.unstack(planes, axis=3), number)
        for number in range(members.start, members.stop)
      ]
      if blank[0] is not None:
        of_codes = tf.where(tf.stack(blank), 0.0, of_codes)
      bits += tf.reduce_sum(of_codes, axis=[0, 2, 3])
    return bits

  def elbo_bits(
    self,
    planes: tf.Tensor,
    seed: tf.Tensor | None = None,
    place: tuple[tf.Tensor, tf.Tensor] | None = None,
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """The negative ELBO of images with one draw of the latents, in bits.

    Args:
      planes: int32 [n, h, w, planes].
      seed: int64 [2], of the draw.
      place: of the first image in the batch of all replicas, and how many
        images that has, int32: what is drawn for an image must not depend on
        which replica has it. None is a batch of its own.

    Returns:
      float32 [n], all bits, and [n], those of the latents: what is paid for
      them less what comes back.
    """
    if seed is None:
      seed = tf.constant([0, 0], tf.int64)
    place = place or (0, tf.shape(planes)[0])
    embedded = self.embed(planes)
    below, latent_bits = embedded, 0.0
    drawn = []
    for number in range(self.latents):
      q = self.posterior(number, below)
      seed = tf.random.experimental.stateless_fold_in(seed, number)
      below = latents.draw(q, noise.uniform(tf.shape(q.location), seed, *place))
      latent_bits += latents.log2_mass(q, below)
      drawn.append(below)
    for number, latent in enumerate(drawn):
      is_last = number == len(drawn) - 1
      p = (
        latents.prior(latent)
        if is_last
        else self.prior(number, drawn[number + 1])
      )
      latent_bits -= latents.log2_mass(p, latent)
    if not drawn:
      latent_bits = tf.zeros(tf.shape(planes)[:1])
    else:
      latent_bits = tf.reduce_sum(latent_bits, axis=[1, 2, 3])
    features = self.features_of_known(drawn[0] if drawn else None, embedded)
    return latent_bits + self._all_code_bits(features, planes), latent_bits

  def restart(self, seed: int, latent_warmup: int = 0) -> None:
    """Begins a training; the weights stay as they are.

    Args:
      seed: of its noise.
      latent_warmup: steps during which the price of the latents rises from
        nothing to what they cost, so that they are put to use before the codes
        have learned to do without them.
    """
    self.step.assign(0)
    self.noise_seed.assign(seed)
    self.latent_warmup.assign(latent_warmup)

  def _step(
    self,
    planes: tf.Tensor,
    seed: tf.Tensor,
    place: tuple[tf.Tensor, tf.Tensor],
  ) -> tf.Tensor:
    """The sum of the loss over the images of a batch."""
    bits, latent_bits = self.elbo_bits(planes, seed, place)
    codes = tf.cast(tf.size(planes[0]), tf.float32)
    self.bits_metric.update_state(bits / codes)
    self.latent_metric.update_state(latent_bits / codes)
    price = tf.cast(self.step + 1, tf.float32) / (self.latent_warmup + 1.0)
    spared = tf.maximum(1.0 - price, 0.0) * latent_bits
    return tf.reduce_sum(bits - spared) / codes

  @tf.autograph.experimental.do_not_convert  # It would only take longer.
  def train_step(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
    """One step of `fit` on planes, int32 [n, h, w, planes]."""
    seed = tf.stack([self.noise_seed, self.step])
    first, total = noise.place_of(tf.shape(data)[:1])
    with tf.GradientTape() as tape:
      # The mean is over the images of all replicas, whose gradients Keras sums.
      loss = self._step(data, seed, (first, total)) / tf.cast(total, tf.float32)
    self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
    self.step.assign_add(1)
    return {metric.name: metric.result() for metric in self.metrics}

  @tf.autograph.experimental.do_not_convert
  def test_step(self, data: tf.Tensor) -> dict[str, tf.Tensor]:
    """One step of `evaluate`."""
    place = noise.place_of(tf.shape(data)[:1])
    self._step(data, tf.constant([0, -1], tf.int64), place)
    return {metric.name: metric.result() for metric in self.metrics}


def _shrink(hidden: tf.Tensor, stride: int) -> tf.Tensor:
  """Means over squares of activations, rounded; zeros fill up the last ones."""
  if stride == 1:
    return hidden
  fill = -tf.shape(hidden)[1:3] % stride
  hidden = tf.pad(hidden, [[0, 0], [0, fill[0]], [0, fill[1]], [0, 0]])
  n, height, width, _ = tf.unstack(tf.shape(hidden))
  squares = tf.reshape(
    hidden,
    [n, height // stride, stride, width // stride, stride, hidden.shape[-1]],
  )
  # A division by a power of two is exact.
  return integer.round_through(
    tf.reduce_sum(squares, axis=[2, 4]) / float(stride**2)
  )


def _head(
  width: int, channels: int, size: int, name: str
) -> tuple[IntegerConv, IntegerConv]:
  return (
    IntegerConv(width, size, name=f"{name}_hidden"),
    IntegerConv(2 * channels, size, gain=0.3, name=f"{name}_out"),
  )


def _apply_head(
  layers: tuple[IntegerConv, IntegerConv], inputs: tf.Tensor
) -> latents.Distribution:
  hidden, out = layers
  return latents.to_distribution(out(activate(hidden(inputs))))
