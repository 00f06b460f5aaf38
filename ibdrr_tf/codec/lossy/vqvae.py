"""The lossy stage: images become two small grids of code indices.

Section 3.1 of the paper, with the two levels of VQ-VAE-2:

    image ─► encode_bottom ─┬──────────────► [·,·] ─► bottom codes, 1/4 size
                            │                 ▲            │
                            └► encode_top     │            ▼
                                  │       decode_top    decode ─► image
                                  ▼           ▲            ▲
                             top codes, 1/8 size ─► lift_top

The top level is quantised first; the bottom level codes what its features hold
beyond the decoded top; the decoder sees both. The networks are convolutions
only, so a model trained on small images codes images of any size.

With `top_depth=0` there is no top level: the bottom codes everything. With
`blank` codes and `stage_dropout`, residual stages of the bottom are left out
where they change least, by a threshold that is drawn for each image in
training; so one model serves many rates: see `coarsen`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import noise
from ibdrr_tf.codec.lossy import quantizer, vqvae_networks
from ibdrr_tf.codec.lossy.vqvae_networks import Networks
from ibdrr_tf.errors import UserError

__all__ = [
  "CodeUsage",
  "HierarchicalVQVAE",
  "mean_psnr",
  "pad_to_grid",
  "psnr",
]

# An image's height and width must be multiples of the top level's stride.
STRIDE = 8


def pad_to_grid(images: tf.Tensor) -> tf.Tensor:
  """Repeats the last row and column up to the next multiple of `STRIDE`.

  Repetition, unlike reflection, works for any size (one pixel has nothing to
  reflect), and it is what costs the codes least: nothing new appears.

  Args:
    images: `[n, h, w, channels]`, h and w at least 1.

  Returns:
    `[n, h', w', channels]` with h', w' multiples of 8; `[:, :h, :w]` is the
    input.
  """
  for axis in (1, 2):
    size = tf.shape(images)[axis]
    padded = -(-size // STRIDE) * STRIDE
    images = tf.gather(
      images, tf.minimum(tf.range(padded), size - 1), axis=axis
    )
  return images


def psnr(original: tf.Tensor, reconstruction: tf.Tensor) -> tf.Tensor:
  """Peak signal-to-noise ratio of each image, 10·log10(255² / MSE).

  The MSE is over one image's pixels and channels. "The PSNR" of a set is the
  mean of this over its images, which is more (0.5 to 1 dB on photographs) than
  the PSNR of the mean MSE.

  Args:
    original: uint8 `[n, h, w, 3]`.
    reconstruction: uint8 `[n, h, w, 3]`.

  Returns:
    float32 `[n]`, at most 100 dB.
  """
  error = tf.cast(original, tf.float32) - tf.cast(reconstruction, tf.float32)
  mse = tf.reduce_mean(tf.square(error), axis=[1, 2, 3])
  # log10 of the ratio; the floor is what 100 dB means for a peak of 255.
  ratio = 255.0**2 / tf.maximum(mse, 255.0**2 * 1e-10)
  return 10.0 / tf.math.log(10.0) * tf.math.log(ratio)


def mean_psnr(
  original: np.ndarray, reconstruction: np.ndarray, batch: int = 250
) -> float:
  """The mean of `psnr` over many images, in batches."""
  values = [
    psnr(original[i : i + batch], reconstruction[i : i + batch]).numpy()
    for i in range(0, len(original), batch)
  ]
  return float(np.concatenate(values).mean())


def _to_float(images: tf.Tensor) -> tf.Tensor:
  """uint8 0 .. 255 to float32 -1 .. 1."""
  return tf.cast(images, tf.float32) / 127.5 - 1.0


def _to_uint8(images: tf.Tensor) -> tf.Tensor:
  """Float -1 .. 1 to the nearest uint8 0 .. 255."""
  scaled = tf.round((tf.cast(images, tf.float32) + 1.0) * 127.5)
  return tf.cast(tf.clip_by_value(scaled, 0.0, 255.0), tf.uint8)


def _no_level(fine: tf.Tensor) -> quantizer.Quantized:
  """A top level without codes, for bottom features `[n, h, w, channels]`."""
  shape = tf.shape(fine)
  grid = tf.concat([shape[:1], shape[1:3] // 2, [0]], axis=0)
  nothing = tf.zeros(shape[:1])
  return quantizer.Quantized(
    tf.zeros(grid),
    tf.ensure_shape(tf.zeros(grid, tf.int32), [None, None, None, 0]),
    nothing,
    nothing,
    tf.zeros([0]),
  )


class CodeUsage(tf.keras.metrics.Metric):
  """How evenly a level's codes are used over an epoch.

  A single batch has too few vectors to tell (2,048 at the top level for 512
  codes), so the histogram is kept over all of them.

  Attributes:
    histogram: float32 `[depth, codebook_size]`, for TensorBoard.
  """

  def __init__(self, codebook_size: int, depth: int, **kwargs):
    super().__init__(**kwargs)
    self.codebook_size = codebook_size
    self.histogram = self.add_weight(
      name="histogram", shape=[depth, codebook_size], initializer="zeros"
    )

  def update_state(self, indices: tf.Tensor) -> None:
    """Counts int32 `[n, h, w, depth]`."""
    depth = self.histogram.shape[0]
    offset = tf.range(depth) * self.codebook_size
    places = tf.reshape(indices + offset, [-1])
    # Not `bincount`, which GPUs refuse where ops must be deterministic.
    counts = tf.math.unsorted_segment_sum(
      tf.ones_like(places, tf.float32), places, depth * self.codebook_size
    )
    self.histogram.assign_add(tf.reshape(counts, self.histogram.shape))

  def reset_state(self) -> None:
    """Forgets all counts."""
    self.histogram.assign(tf.zeros_like(self.histogram))

  def result(self) -> tf.Tensor:
    """The perplexity; the geometric mean over the stages if several."""
    stages = quantizer.perplexity(self.histogram)
    return tf.exp(tf.reduce_mean(tf.math.log(stages)))


class HierarchicalVQVAE(tf.keras.Model):
  """A VQ-VAE with a top and a bottom level of codes.

  Usage:

  >>> model = HierarchicalVQVAE()
  >>> model.compile(tf.keras.optimizers.Adam(3e-4))
  >>> model.fit(dataset)                  # of uint8 [n, h, w, 3]
  >>> top, bottom = model.encode(images)  # int32 [n, h/8, w/8, top_depth], …
  >>> model.decode(top, bottom)[:, :h, :w]

  The loss of an image is equation 2 (mean squared error on -1 .. 1) plus
  `commitment` times equation 4, plus equation 3 where the codebook learns by
  gradient, plus `feature_weight` times `feature_loss`.

  Args:
    codebook_size: K of every codebook.
    embedding: channels of a code.
    channels: of the networks.
    residual_blocks: in each of the four residual stacks.
    residual_channels: inside a residual block.
    top_depth: residual quantisation stages at the top level; 0 has none.
    bottom_depth: the same at the bottom level, at least 1.
    commitment: weight of equation 4.
    codebook: "ema" or "gradient", see `VectorQuantizer`.
    layout: "paper" or "subpixel", see `vqvae_networks.Networks`.
    seed: of the initial weights, and of the codebooks' restarts.
    feature_loss: a function (images, reconstructions), both float32
      `[n, h, w, 3]` on 0 .. 1 (reconstructions not clipped), to a loss `[n]`;
      with a classifier's features it makes the codec keep what classes are
      told apart by.
    feature_weight: of that function.
    blank: whether places may leave out the bottom's last stages, see
      `VectorQuantizer`.
    stage_dropout: the share of images that are coarsened in training, each by a
      random threshold; needs `blank`.
    kernel_levels: the largest integer that a weight is stored as, to which
      kernels are rounded in training too; 0 is 63, rounded after training.
  """

  def __init__(
    self,
    codebook_size: int = 512,
    embedding: int = 64,
    channels: int = 128,
    residual_blocks: int = 2,
    residual_channels: int = 32,
    top_depth: int = 1,
    bottom_depth: int = 1,
    commitment: float = 0.25,
    codebook: str = "ema",
    layout: str = "subpixel",
    seed: int = 0,
    feature_loss: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] | None = None,
    feature_weight: float = 0.0,
    blank: bool = False,
    stage_dropout: float = 0.0,
    kernel_levels: int = 0,
    **kwargs,
  ):
    super().__init__(**kwargs)
    if layout not in ("paper", "subpixel"):
      raise UserError(
        f"The layout of a VQ-VAE is 'paper' or 'subpixel', not {layout!r}."
      )
    self._config = {
      "codebook_size": codebook_size,
      "embedding": embedding,
      "channels": channels,
      "residual_blocks": residual_blocks,
      "residual_channels": residual_channels,
      "top_depth": top_depth,
      "bottom_depth": bottom_depth,
      "commitment": commitment,
      "codebook": codebook,
      "layout": layout,
      "seed": seed,
    }
    if blank:  # Models without have no such word in their files.
      self._config["blank"] = True
    if kernel_levels:
      self._config["kernel_levels"] = kernel_levels
    self.feature_loss = feature_loss
    self.feature_weight = feature_weight
    self.stage_dropout = stage_dropout
    self._make_layers(self._config)
    self._make_metrics(self._config)
    # Variables exist from the start: loading and storing need no first batch.
    self(tf.zeros([1, STRIDE, STRIDE, 3], tf.uint8))

  def _make_layers(self, config):
    networks = Networks(config)
    self.has_top = config["top_depth"] > 0
    self.encode_bottom = networks.encode_bottom()
    if self.has_top:
      self.encode_top = networks.encode_top()
      self.to_top = networks.conv(config["embedding"], 1, relu=False)
      self.decode_top = networks.decode_top()
    self.to_bottom = networks.conv(config["embedding"], 1, relu=False)
    if self.has_top:
      self.lift_top = networks.lift_top()
    self.decoder = networks.decode()
    shared = {
      key: config[key] for key in ("codebook_size", "embedding", "codebook")
    }
    if self.has_top:
      self.top_quantizer = quantizer.VectorQuantizer(
        depth=config["top_depth"],
        seed=2 * config["seed"],
        name="top_quantizer",
        **shared,
      )
    self.bottom_quantizer = quantizer.VectorQuantizer(
      depth=config["bottom_depth"],
      seed=2 * config["seed"] + 1,
      blank=config.get("blank", False),
      name="bottom_quantizer",
      **shared,
    )

  def _make_metrics(self, config):
    size = config["codebook_size"]
    self.loss_metric = tf.keras.metrics.Mean(name="loss")
    self.psnr_metric = tf.keras.metrics.Mean(name="psnr")
    depths = {"top": config["top_depth"], "bottom": config["bottom_depth"]}
    self.usages = [
      CodeUsage(size, depth, name=f"{level}_perplexity")
      for level, depth in depths.items()
      if depth
    ]

  @property
  def metrics(self) -> list[tf.keras.metrics.Metric]:
    """Loss, PSNR (see `psnr`) and the perplexity of each level."""
    return [self.loss_metric, self.psnr_metric, *self.usages]

  def get_config(self) -> dict:
    """The constructor's arguments, but for the feature loss."""
    return dict(self._config)

  def quantize(
    self,
    images: tf.Tensor,
    training: bool = False,
    threshold: tf.Tensor | None = None,
  ) -> tuple[quantizer.Quantized, quantizer.Quantized]:
    """Encodes and quantises both levels.

    Args:
      images: uint8 `[n, h, w, 3]`, h and w multiples of 8.
      training: whether the codebooks learn.
      threshold: float32 `[n]`, by which the bottom is coarsened, or None.

    Returns:
      Top, on an h/8 x w/8 grid, and bottom, on h/4 x w/4.
    """
    fine = self.encode_bottom(_to_float(images), training=training)
    if not self.has_top:
      features = vqvae_networks.apply(self.to_bottom, fine, training)
      return _no_level(fine), self.bottom_quantizer(
        features, training, threshold
      )
    coarse = self.encode_top(fine, training=training)
    top = self.top_quantizer(
      vqvae_networks.apply(self.to_top, coarse, training), training=training
    )
    known = self.decode_top(top.quantized, training=training)
    features = vqvae_networks.apply(
      self.to_bottom, tf.concat([known, fine], axis=-1), training
    )
    return top, self.bottom_quantizer(features, training, threshold)

  def reconstruct(
    self, top: tf.Tensor, bottom: tf.Tensor, training: bool = False
  ) -> tf.Tensor:
    """Decodes quantised vectors to float32 images on -1 .. 1, not clipped."""
    if not self.has_top:
      return self.decoder(bottom, training=training)
    both = tf.concat(
      [
        self.lift_top(top, training=training),
        tf.cast(bottom, self.lift_top.compute_dtype),
      ],
      axis=-1,
    )
    return self.decoder(both, training=training)

  def call(self, images: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Reconstructs uint8 `[n, h, w, 3]` as float32 on -1 .. 1."""
    size = tf.shape(images)
    padded = pad_to_grid(images)
    top, bottom = self.quantize(padded, training)
    result = self.reconstruct(top.quantized, bottom.quantized, training)
    return result[:, : size[1], : size[2]]

  @tf.function(
    autograph=False,
    input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)],
  )
  def encode(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Images to codes.

    Args:
      images: uint8 `[n, h, w, 3]` of any size; padded by `pad_to_grid`.

    Returns:
      top, int32 `[n, ceil(h/8), ceil(w/8), top_depth]`, and bottom, int32
      `[n, 2·ceil(h/8), 2·ceil(w/8), bottom_depth]`.
    """
    top, bottom = self.quantize(pad_to_grid(images))
    return top.indices, bottom.indices

  @tf.function(
    autograph=False, input_signature=[tf.TensorSpec([None] * 4, tf.int32)] * 2
  )
  def decode(self, top: tf.Tensor, bottom: tf.Tensor) -> tf.Tensor:
    """Codes to uint8 images of the padded size; crop with `[:, :h, :w]`."""
    if self.has_top:
      top = self.top_quantizer.lookup(top)
    return _to_uint8(
      self.reconstruct(top, self.bottom_quantizer.lookup(bottom))
    )

  @tf.function(
    autograph=False,
    input_signature=[
      tf.TensorSpec([None] * 4, tf.int32),
      tf.TensorSpec([None], tf.float32),
    ],
  )
  def coarsen(self, bottom: tf.Tensor, threshold: tf.Tensor) -> tf.Tensor:
    """The bottom's codes without the stages that change least.

    Args:
      bottom: int32 `[n, h, w, bottom_depth]`.
      threshold: float32 `[n]`, see `VectorQuantizer.threshold`.
    """
    return self.bottom_quantizer.coarsen(bottom, threshold)

  def _image_losses(self, images, training):
    """The loss of each image `[n]`; counts codes and PSNR in passing."""
    size = tf.shape(images)
    threshold = None
    if training and self.stage_dropout:
      threshold = self._draw_thresholds(tf.shape(images)[:1])
    top, bottom = self.quantize(pad_to_grid(images), training, threshold)
    result = self.reconstruct(top.quantized, bottom.quantized, training)
    # What was padded is cut off again, so how well it comes back is no matter.
    result = result[:, : size[1], : size[2]]
    target = _to_float(images)
    loss = tf.reduce_mean(tf.square(result - target), axis=[1, 2, 3])
    loss += top.codebook_loss + bottom.codebook_loss
    loss += self._config["commitment"] * (
      top.commitment_loss + bottom.commitment_loss
    )
    if self.feature_loss is not None and self.feature_weight:
      loss += self.feature_weight * self.feature_loss(
        (target + 1.0) / 2.0, (result + 1.0) / 2.0
      )
    self.loss_metric.update_state(loss)
    self.psnr_metric.update_state(psnr(images, _to_uint8(result)))
    levels = (top, bottom) if self.has_top else (bottom,)
    for usage, level in zip(self.usages, levels, strict=True):
      usage.update_state(level.indices)
    return loss

  def _draw_thresholds(self, size: tf.Tensor) -> tf.Tensor:
    """By what each image is coarsened in training: float32 `[size]`."""
    seed = tf.stack(
      [tf.cast(self._config["seed"], tf.int64), self.bottom_quantizer.step]
    )
    drawn = noise.uniform(
      tf.concat([size, [2]], axis=0), seed, *noise.place_of(size)
    )
    some = self.bottom_quantizer.draw_threshold(drawn[:, 1])
    return tf.where(drawn[:, 0] < self.stage_dropout, some, 0.0)

  def train_step(self, data) -> dict[str, tf.Tensor]:
    """One step of `fit` on uint8 images (labels, if any, are ignored)."""
    images, _, _ = tf.keras.utils.unpack_x_y_sample_weight(data)
    # The mean is over the images of all replicas, whose gradients Keras sums;
    # so replicas with fewer images in the last batch do not count for more.
    number = tf.cast(tf.shape(images)[0], tf.float32)
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync > 1:
      number = context.all_reduce(tf.distribute.ReduceOp.SUM, number)
    with tf.GradientTape() as tape:
      loss = tf.reduce_sum(self._image_losses(images, training=True)) / number
    self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
    return {metric.name: metric.result() for metric in self.metrics}

  def test_step(self, data) -> dict[str, tf.Tensor]:
    """One step of `evaluate`."""
    images, _, _ = tf.keras.utils.unpack_x_y_sample_weight(data)
    self._image_losses(images, training=False)
    return {metric.name: metric.result() for metric in self.metrics}

  def warm_start(self, other: HierarchicalVQVAE) -> None:
    """Copies a model that differs at most in having fewer stages.

    New stages start from the data they meet in training, so a model of depth 2
    costs a short fine-tuning of one of depth 1.

    Args:
      other: a model with the same configuration but for the depths.
    """
    own, theirs = self.get_config(), other.get_config()
    free = ["bottom_depth", "commitment", "seed", "kernel_levels"]
    if self.has_top == other.has_top:
      free.append("top_depth")
    for name in own | theirs:
      mine, found = own.get(name, False), theirs.get(name, False)
      if name not in free and mine != found:
        raise UserError(
          f"a VQ-VAE with {name}={mine} cannot be started from one with "
          f"{found}: give the same, or --config.vqvae.start_from= to begin "
          f"with nothing."
        )
    for mine, source in zip(self._networks(), other._networks(), strict=True):
      mine.set_weights(source.get_weights())
    for mine, theirs in zip(self.quantizers, other.quantizers, strict=True):
      mine.copy_stages(theirs)

  @property
  def quantizers(self) -> tuple[quantizer.VectorQuantizer, ...]:
    """Top, where there is one, and bottom."""
    if not self.has_top:
      return (self.bottom_quantizer,)
    return self.top_quantizer, self.bottom_quantizer

  def stored_variables(self) -> list[tuple[tf.Variable, int | None]]:
    """All that encoding and decoding need, in a fixed order.

    Returns:
      Pairs of a variable and the axis along which its values differ in size:
      the output channels of a kernel, the dimensions of a codebook; None for
      biases.
    """
    result = []
    for network in self._networks():
      transposed = {
        id(layer.kernel)
        for layer in (network, *network.submodules)
        if isinstance(layer, tf.keras.layers.Conv2DTranspose)
      }
      for variable in network.weights:
        axis = None
        if len(variable.shape) == 4:
          axis = 2 if id(variable) in transposed else 3
        result.append((variable, axis))
    for level in self.quantizers:
      result += [(book, 1) for book in level.codebooks]
    return result

  def _networks(self):
    if not self.has_top:
      return self.encode_bottom, self.to_bottom, self.decoder
    return (
      self.encode_bottom,
      self.encode_top,
      self.to_top,
      self.decode_top,
      self.to_bottom,
      self.lift_top,
      self.decoder,
    )
