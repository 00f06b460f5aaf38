"""Vector quantisation: features on a grid become indices into a codebook.

Section 3.1 of the paper. A feature vector z is replaced by its nearest code,

  k* = argmin_k ||z - e_k||^2                                   (equation 1)

and the encoder is pulled towards the code it chose (equation 4). The codebook
itself follows the features either by exponential moving averages, which are an
online k-means, or by the gradient of equation 3.

A *depth* greater than one quantises in residual stages: stage s codes what
stages 0 .. s-1 have left over, and the quantised vector is the sum of one code
from each stage. Every stage has its own codebook, because residuals are smaller
than features and differently distributed; it costs 33 kB in storage, less than
one byte an image of CIFAR-100. Depth one is the paper.

With *blank* codes, code 0 of every stage but the first is the zero vector, so
that a place may do without its last stages: see `coarsen`. One model then
serves many rates, since a lossless stage makes blank codes cheap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from ibdrr_tf.errors import UserError

__all__ = ["Quantized", "VectorQuantizer", "nearest_code", "perplexity"]

# Keeps the smoothed usage of a code that is never chosen away from zero.
_LAPLACE = 1e-5

# A step from which on the moving averages have their full memory.
_SETTLED = 1000


class Quantized(NamedTuple):
  """What a `VectorQuantizer` returns.

  Attributes:
    quantized: float32 `[n, h, w, embedding]`, the sum of the chosen codes; in
      training its gradient goes straight through to the input.
    indices: int32 `[n, h, w, depth]`, the chosen codes (equation 1).
    commitment_loss: float32 `[n]`, equation 4 for each image, the mean over
      positions and channels, summed over stages. Not yet weighted.
    codebook_loss: float32 `[n]`, equation 3 for each image; zeros where the
      codebook follows moving averages instead.
    perplexity: float32 `[depth]`, exp(entropy) of the code usage in this batch
      (of all replicas' batches in training): between 1 and `codebook_size`.
  """

  quantized: tf.Tensor
  indices: tf.Tensor
  commitment_loss: tf.Tensor
  codebook_loss: tf.Tensor
  perplexity: tf.Tensor


def nearest_code(vectors: tf.Tensor, codebook: tf.Tensor) -> tf.Tensor:
  """Equation 1 as one matrix product: ||z||^2 is the same for all codes.

  Args:
    vectors: float32 `[n, embedding]`.
    codebook: float32 `[codebook_size, embedding]`.

  Returns:
    int32 `[n]`; the smaller index where two codes are equally near.
  """
  distance = tf.reduce_sum(tf.square(codebook), axis=1) - 2.0 * tf.matmul(
    vectors, codebook, transpose_b=True
  )
  return tf.argmin(distance, axis=1, output_type=tf.int32)


def perplexity(counts: tf.Tensor) -> tf.Tensor:
  """exp(entropy) of usage counts.

  Args:
    counts: `[..., codebook_size]`, how often each code was chosen.

  Returns:
    float32 `[...]`; 1 where nothing was counted.
  """
  counts = tf.cast(counts, tf.float32)
  share = tf.math.divide_no_nan(
    counts, tf.reduce_sum(counts, axis=-1, keepdims=True)
  )
  return tf.exp(-tf.reduce_sum(tf.math.xlogy(share, share), axis=-1))


def _with_blank(book: tf.Tensor) -> tf.Tensor:
  """A codebook, `[codes, embedding]`, whose code 0 is the zero vector."""
  return tf.concat([tf.zeros_like(book[:1]), book[1:]], axis=0)


class VectorQuantizer(tf.keras.layers.Layer):
  """Quantises the last axis of a grid of features with learned codebooks.

  In training, a call also learns: codes that have never seen data are taken
  from the batch, the moving averages take a step, and codes that hardly anyone
  chooses are restarted at random vectors of the batch. What is random is a
  function of `(seed, step, stage, replica)` alone, and `step` is a variable of
  the layer, so a resumed run repeats what an uninterrupted one does.

  Under `tf.distribute` every quantity that moves a codebook is first summed
  over the replicas, and code k restarts from a vector of replica k mod R; so
  all replicas compute the same codebooks.

  Usage:

  >>> layer = VectorQuantizer(codebook_size=512, embedding=64)
  >>> out = layer(features, training=True)  # features [n, h, w, 64]
  >>> layer.lookup(out.indices)             # [n, h, w, 64] again

  Args:
    codebook_size: K, the number of codes of a stage.
    embedding: number of channels of the input and of a code.
    depth: number of residual stages.
    codebook: "ema" (moving averages) or "gradient" (equation 3).
    decay: of the moving averages.
    restart_below: a code is dead once its average usage is less than this
      share of `1 / codebook_size`; 0 never restarts.
    blank: whether code 0 of every stage but the first is the zero vector.
    seed: of initialisation and restarts.
  """

  def __init__(
    self,
    codebook_size: int = 512,
    embedding: int = 64,
    depth: int = 1,
    codebook: str = "ema",
    decay: float = 0.99,
    restart_below: float = 0.1,
    blank: bool = False,
    seed: int = 0,
    **kwargs,
  ):
    # Distances in half precision would choose wrong codes.
    super().__init__(dtype=tf.float32, **kwargs)
    if codebook not in ("ema", "gradient"):
      raise UserError(
        f"The codebook is learned by 'ema' or 'gradient', not {codebook!r}."
      )
    if min(codebook_size, embedding, depth) < 1:
      raise UserError(
        "codebook_size, embedding and depth of a quantiser must be at least "
        f"1, not {codebook_size}, {embedding} and {depth}."
      )
    self.codebook_size = codebook_size
    self.embedding = embedding
    self.depth = depth
    self.codebook = codebook
    self.decay = decay
    self.restart_below = restart_below
    self.blank = blank
    self.seed = seed

  def build(self, input_shape: tf.TensorShape) -> None:
    """Creates one codebook and its statistics for each stage."""
    if input_shape[-1] != self.embedding:
      raise UserError(
        f"The quantiser expects {self.embedding} channels, "
        f"not {input_shape[-1]}."
      )
    size, learned = self.codebook_size, self.codebook == "gradient"
    self.codebooks = []
    for stage in range(self.depth):
      initializer = tf.keras.initializers.RandomUniform(
        -1.0 / size, 1.0 / size, seed=self.seed + stage
      )
      self.codebooks.append(
        self._state(
          f"codebook_{stage}",
          [size, self.embedding],
          initializer=initializer,
          trainable=learned,
        )
      )
    # `usage` is each code's average share of the vectors; a moving average of
    # shares, unlike one of counts, does not depend on the batch size.
    self.usage = self._state("usage", [self.depth, size])
    self.sums = self._state("sums", [self.depth, size, self.embedding])
    self.initialized = self._state("initialized", [self.depth], tf.bool)
    self.step = self._state("step", [], tf.int64)
    super().build(input_shape)

  def _state(self, name, shape, dtype=tf.float32, trainable=False, **kwargs):
    """A variable that each replica assigns the same value to."""
    kwargs.setdefault("initializer", "zeros")
    return self.add_weight(
      name=name,
      shape=shape,
      dtype=dtype,
      trainable=trainable,
      synchronization=tf.VariableSynchronization.AUTO
      if trainable
      else tf.VariableSynchronization.ON_READ,
      aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA,
      **kwargs,
    )

  def call(
    self,
    inputs: tf.Tensor,
    training: bool = False,
    threshold: tf.Tensor | None = None,
  ) -> Quantized:
    """Quantises features; learns if `training`.

    Args:
      inputs: float32 `[n, h, w, embedding]`.
      training: whether the codebooks learn.
      threshold: float32 `[n]`, by which each image is coarsened, see `coarsen`;
        None leaves all stages. Codebooks learn from all of them either way.
    """
    shape = tf.shape(inputs)
    if threshold is not None:
      threshold = tf.repeat(threshold, shape[1] * shape[2])
      stays = tf.ones_like(threshold, tf.bool)
    rest = tf.reshape(inputs, [-1, self.embedding])
    total = tf.zeros_like(rest)
    indices, commitment, codebook_loss, perplexities = [], [], [], []
    updates = []
    for stage in range(self.depth):
      if training:
        result = self._learn(stage, rest)
        updates.append(result[2:])
        codes, chosen, counts = result[0], result[1], result[2]
      else:
        codes = tf.convert_to_tensor(self.codebooks[stage])
        chosen = nearest_code(rest, codes)
        # Not `bincount`, which GPUs refuse where ops must be deterministic.
        counts = tf.math.unsorted_segment_sum(
          tf.ones_like(chosen), chosen, self.codebook_size
        )
      code = tf.gather(codes, chosen)
      if threshold is not None and stage:
        stays &= tf.reduce_sum(tf.square(code), axis=1) >= threshold
        used = tf.where(stays[:, tf.newaxis], code, 0.0)
        chosen = tf.where(stays, chosen, 0)
      else:
        used = code
      indices.append(chosen)
      perplexities.append(perplexity(counts))
      commitment.append(tf.square(rest - tf.stop_gradient(code)))
      if self.codebook == "gradient":
        codebook_loss.append(tf.square(tf.stop_gradient(rest) - code))
      code = tf.stop_gradient(code)
      rest, total = rest - code, total + tf.stop_gradient(used)
    if training:
      self._assign(updates)
      # The gradient of the loss by the quantised vector is handed to the
      # encoder as it is: the search itself has none.
      flat = tf.reshape(inputs, [-1, self.embedding])
      total = flat + tf.stop_gradient(total - flat)
    return Quantized(
      tf.reshape(total, shape),
      tf.reshape(tf.stack(indices, 1), tf.concat([shape[:3], [self.depth]], 0)),
      self._mean_by_image(commitment, shape),
      self._mean_by_image(codebook_loss, shape),
      tf.stack(perplexities),
    )

  def lookup(self, indices: tf.Tensor) -> tf.Tensor:
    """The vectors that codes stand for.

    Args:
      indices: int32 `[n, h, w, depth]`.

    Returns:
      float32 `[n, h, w, embedding]`, the sum over the stages.
    """
    return tf.add_n(
      [
        tf.gather(book, indices[..., s])
        for s, book in enumerate(self.codebooks)
      ]
    )

  def coarsen(self, indices: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """Leaves out the stages that change a place least.

    A place keeps its first stage, and each further one as long as the squared
    length of its code is at least the threshold; the codes after that are
    blank. So coarsening twice is coarsening once, with the larger threshold,
    and codes in a memory can be coarsened without their images.

    Args:
      indices: int32 `[n, h, w, depth]`.
      threshold: float32 `[n]` or scalar.

    Returns:
      int32 of the same shape.
    """
    self.check_blank()
    lengths = tf.reduce_sum(tf.square(tf.stack(self.codebooks)), axis=2)
    stages = tf.broadcast_to(tf.range(self.depth), tf.shape(indices))
    length = tf.gather_nd(lengths, tf.stack([stages, indices], axis=-1))
    threshold = tf.reshape(threshold, [-1, 1, 1, 1])
    stays = (length >= threshold) | (stages == 0)
    stays = tf.math.cumprod(tf.cast(stays, tf.int32), axis=3)
    return indices * stays

  def check_blank(self) -> None:
    """Refuses a quantiser whose stages cannot be left out."""
    if not self.blank:
      raise UserError(
        "this VQ-VAE has no blank codes, so that no stage can be left out: "
        "train one with --config.vqvae.blank=true, or give "
        "--config.memory.detail=100."
      )

  def threshold(self, detail: float) -> float:
    """What to coarsen by, on a scale that does not depend on the model.

    Args:
      detail: 0 to 100, the share of codes after the first stage that are long
        enough to stay, in percent: 100 keeps all stages, 0 the first alone.
    """
    if detail >= 100:
      return 0.0
    if detail <= 0:
      return float("inf")
    books = np.stack([book.numpy() for book in self.codebooks[1:]])
    lengths = np.sort(np.square(books.astype(np.float64)).sum(axis=2).ravel())
    place = max(int((1 - detail / 100) * len(lengths)), 1)
    # Between two codes, so that no rounding decides which of them stay.
    return float(lengths[place - 1 : place + 1].mean())

  def draw_threshold(self, drawn: tf.Tensor) -> tf.Tensor:
    """Thresholds all over the range in which they matter.

    Args:
      drawn: float32 `[n]`, random numbers in (0, 1).

    Returns:
      float32 `[n]`: the squared length of some code after the first stage, or
      with probability 1 / depth infinity, at which only the first is left.
    """
    lengths = tf.reduce_sum(tf.square(tf.stack(self.codebooks)), axis=2)
    choices = tf.reshape(lengths[1:], [-1])
    place = tf.cast(drawn * float(self.depth * self.codebook_size), tf.int32)
    last = tf.size(choices)
    some = tf.gather(choices, tf.minimum(place, tf.maximum(last - 1, 0)))
    return tf.where(place < last, some, float("inf"))

  def adopt(self, codebooks: list) -> None:
    """Takes over codebooks of unknown history, as if all codes were in use.

    Args:
      codebooks: for each stage, float32 `[codebook_size, embedding]`.
    """
    size = self.codebook_size
    for mine, theirs in zip(self.codebooks, codebooks, strict=True):
      mine.assign(theirs)
    self.usage.assign(tf.fill([self.depth, size], 1.0 / size))
    self.sums.assign(
      tf.stack([tf.cast(b, tf.float32) for b in codebooks]) / size
    )
    self.initialized.assign(tf.fill([self.depth], True))
    # Further training is not a first encounter: see `_decay_now`.
    self.step.assign(tf.maximum(self.step, _SETTLED))

  def copy_stages(self, other: VectorQuantizer) -> None:
    """Takes over the stages of a quantiser of at most the same depth."""
    stages = other.depth
    if stages > self.depth:
      raise UserError(
        f"A quantiser of depth {self.depth} cannot take over {stages} stages."
      )
    for mine, theirs in zip(self.codebooks, other.codebooks, strict=False):
      mine.assign(theirs)
    for name in ("usage", "sums", "initialized"):
      mine, theirs = getattr(self, name), getattr(other, name)
      mine.assign(tf.concat([theirs, mine[stages:]], axis=0))
    self.step.assign(other.step)

  def _mean_by_image(self, errors, shape):
    """Sums stages of `[n*h*w, embedding]`, averages over each image."""
    if not errors:
      return tf.zeros(shape[:1])
    return tf.reduce_mean(tf.reshape(tf.add_n(errors), shape), axis=[1, 2, 3])

  def _learn(self, stage, vectors):
    """Searches one stage and prepares the step its codebook takes.

    Nothing is assigned yet, because a collective or an assignment inside a
    conditional would not work on several replicas: what does not apply is
    computed and masked out.

    Args:
      stage: the number of the residual stage.
      vectors: float32 `[n, embedding]`, this replica's.

    Returns:
      The codebook to quantise this batch with, the chosen codes int32 `[n]`,
      then, the same on all replicas: counts, usage, sums and next codebook.
    """
    vectors = tf.stop_gradient(vectors)
    candidates = self._all_reduce(self._candidates(stage, vectors))
    if self.blank and stage:
      candidates = _with_blank(candidates)
    known = self.initialized[stage]
    book = tf.where(known, self.codebooks[stage], candidates)
    chosen = nearest_code(vectors, tf.stop_gradient(book))
    size = self.codebook_size
    counts, sums = self._all_reduce(
      [
        tf.math.unsorted_segment_sum(tf.ones_like(vectors[:, 0]), chosen, size),
        tf.math.unsorted_segment_sum(vectors, chosen, size),
      ]
    )
    number = tf.maximum(tf.reduce_sum(counts), 1.0)
    # A new codebook starts as if all its codes had been chosen equally often.
    fair = tf.fill([size], 1.0 / size)
    usage = tf.where(known, self.usage[stage], fair)
    totals = tf.where(known, self.sums[stage], candidates / size)
    pace = 1.0 - self._decay_now()
    usage += pace * (counts / number - usage)
    totals += pace * (sums / number - totals)
    if self.codebook == "ema":
      smoothed = (usage + _LAPLACE / size) / (1.0 + _LAPLACE)
      moved = totals / smoothed[:, tf.newaxis]
    else:
      moved = tf.stop_gradient(book)
    dead = usage < self.restart_below / size
    column = dead[:, tf.newaxis]
    moved = tf.where(column, candidates, moved)
    if self.blank and stage:
      moved = _with_blank(moved)
    totals = tf.where(column, candidates / size, totals)
    usage = tf.where(dead, fair, usage)
    return book, chosen, counts, usage, totals, moved

  def _decay_now(self):
    """The decay at this step: short memory at first, `decay` in the end.

    A new encoder's features move so fast that codes averaged over a hundred
    steps fall behind, all vectors choose one of them, and training stalls.
    """
    step = tf.cast(self.step, tf.float32)
    return tf.minimum(self.decay, (1.0 + step) / (10.0 + step))

  def _assign(self, updates):
    """Takes the steps that `_learn` has prepared for all stages."""
    _, usage, totals, moved = zip(*updates, strict=True)
    for book, value in zip(self.codebooks, moved, strict=True):
      book.assign(value)
    self.usage.assign(tf.stack(usage))
    self.sums.assign(tf.stack(totals))
    self.initialized.assign(tf.ones_like(self.initialized))
    self.step.assign(self.step + 1)

  def _candidates(self, stage, vectors):
    """Random vectors of the batch, zero where another replica provides them.

    Args:
      stage: the number of the residual stage.
      vectors: float32 `[n, embedding]`; n may be 0 on a replica that got no
        part of the last batch.

    Returns:
      float32 `[codebook_size, embedding]`.
    """
    size = self.codebook_size
    context = tf.distribute.get_replica_context()
    replica, replicas = 0, 1
    if context is not None:
      replicas = context.num_replicas_in_sync
      replica = tf.cast(context.replica_id_in_sync_group, tf.int32)
    stream = (self.seed * self.depth + stage) * replicas + replica
    seed = tf.stack([tf.cast(stream, tf.int64), tf.cast(self.step, tf.int64)])
    number = tf.shape(vectors)[0]
    rows = tf.random.stateless_uniform(
      [size], seed, maxval=tf.maximum(number, 1), dtype=tf.int32
    )
    picked = tf.cond(
      number > 0,
      lambda: tf.gather(vectors, rows),
      lambda: tf.zeros([size, self.embedding]),
    )
    mine = tf.equal(tf.range(size) % replicas, replica)
    return tf.where(mine[:, tf.newaxis], picked, 0.0)

  def _all_reduce(self, values):
    """Sums over the replicas; the values themselves where there is one."""
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
      return values
    return context.all_reduce(tf.distribute.ReduceOp.SUM, values)

  def get_config(self) -> dict:
    """The constructor's arguments."""
    return {
      **super().get_config(),
      "codebook_size": self.codebook_size,
      "embedding": self.embedding,
      "depth": self.depth,
      "codebook": self.codebook,
      "decay": self.decay,
      "restart_below": self.restart_below,
      "blank": self.blank,
      "seed": self.seed,
    }
