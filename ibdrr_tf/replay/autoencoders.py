"""Small networks that make codes of images and images of codes.

They serve the methods whose memory is a network that keeps learning: `dgr`,
`scalable_recollections`, `aqm` and `eec`. The codec of this package is another
one (`ibdrr_tf.codec`): it is trained once, and then frozen.
"""

import pathlib
from collections.abc import Sequence

import ml_collections
import numpy as np
import tensorflow as tf

from ibdrr_tf import training
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.distribution import learning_rate_factor

__all__ = [
  "Coder",
  "build_decoder",
  "build_encoder",
  "fit_coder",
  "grid_of",
  "in_batches",
  "scaled",
  "to_pixels",
]

layers = tf.keras.layers

_CODER = 13  # folded into the seed
_BATCH = 250


def scaled(images: tf.Tensor) -> tf.Tensor:
  """Pixels, uint8 or 0 to 255, as float32 numbers from -1 to 1."""
  return tf.cast(images, tf.float32) / 127.5 - 1.0


def to_pixels(outputs: tf.Tensor) -> tf.Tensor:
  """Undoes `scaled`: uint8."""
  levels = tf.round((outputs + 1.0) * 127.5)
  return tf.cast(tf.clip_by_value(levels, 0.0, 255.0), tf.uint8)


def grid_of(shape: Sequence[int], halvings: int) -> tuple[int, int]:
  """Height and width after some convolutions of stride 2."""
  height, width = shape[:2]
  for _ in range(halvings):
    height, width = -(-height // 2), -(-width // 2)
  return height, width


def build_encoder(
  shape: Sequence[int], widths: Sequence[int], outputs: int
) -> tf.keras.Model:
  """float32 [b, *shape] -> float32 [b, h', w', outputs], unbounded.

  Args:
    shape: (height, width, channels).
    widths: channels of each convolution of stride 2.
    outputs: channels of the result.
  """
  x = inputs = tf.keras.Input(list(shape))
  for width in widths:
    x = layers.Conv2D(width, 4, 2, "same", activation="relu")(x)
  return tf.keras.Model(inputs, layers.Conv2D(outputs, 3, padding="same")(x))


def build_decoder(
  shape: Sequence[int], widths: Sequence[int], channels: int
) -> tf.keras.Model:
  """float32 [b, h', w', channels] -> float32 [b, *shape], unbounded.

  Args:
    shape: (height, width, channels) of the result.
    widths: those of the encoder.
    channels: of the codes.
  """
  height, width = grid_of(shape, len(widths))
  x = inputs = tf.keras.Input([height, width, channels])
  x = layers.Conv2D(widths[-1], 3, padding="same", activation="relu")(x)
  for number in reversed(range(len(widths))):
    last = number == 0
    x = layers.Conv2DTranspose(
      shape[-1] if last else widths[number - 1],
      4,
      2,
      "same",
      activation=None if last else "relu",
    )(x)
  return tf.keras.Model(inputs, x[:, : shape[0], : shape[1]])


class Coder(tf.keras.Model):
  """A model that learns by the sum of some parts of a loss.

  Attributes:
    PARTS: names of these parts, which are also shown as metrics.
  """

  PARTS: tuple[str, ...] = ()

  def __init__(self):
    super().__init__()
    self._means = {n: tf.keras.metrics.Mean(n) for n in ("loss", *self.PARTS)}

  @property
  def weights(self) -> list[tf.Variable]:
    """Those of its networks. Keras' own list has metrics as well."""
    return [weight for layer in self.layers for weight in layer.weights]

  def parts(
    self, images: tf.Tensor, labels: tf.Tensor, key: tf.Tensor
  ) -> dict[str, tf.Tensor]:
    """Parts of the loss of a batch, each a mean over it.

    Args:
      images: uint8 [b, h, w, 3].
      labels: int32 [b].
      key: int32 [2], a seed that no other batch has.
    """
    raise NotImplementedError

  def train_step(self, data: tuple) -> dict[str, tf.Tensor]:
    """Takes one step on a batch."""
    with tf.GradientTape() as tape:
      parts = self.parts(*data)
      loss = tf.add_n(list(parts.values()))
      share = loss / tf.distribute.get_strategy().num_replicas_in_sync
    self.optimizer.minimize(share, self.trainable_variables, tape=tape)
    for name, value in {"loss": loss, **parts}.items():
      self._means[name].update_state(value)
    return {name: mean.result() for name, mean in self._means.items()}


def fit_coder(
  coder: Coder,
  examples: Examples,
  *,
  section: ml_collections.ConfigDict,
  config: ml_collections.ConfigDict,
  state: pathlib.Path,
  step: int,
) -> None:
  """Trains a coder; an interrupted training goes on after its last epoch.

  Args:
    coder: made within the scope of its strategy.
    examples: what to train on; images are only flipped.
    section: `coder_epochs`, or more for `coder_updates`; `coder_batch_size`;
      and `coder_rate` of Adam, which falls along a cosine.
    config: the whole configuration.
    state: folder of the state; gets checkpoints and traces.
    step: number of the step.
  """
  strategy = coder.distribute_strategy
  size = section.coder_batch_size
  steps = examples.steps(size, strategy.num_replicas_in_sync)
  # Few images make short epochs: as many more as the updates ask for.
  epochs = max(section.coder_epochs, -(-section.coder_updates // steps))
  seed = stream.fold_in(config.seed, step, _CODER)
  with strategy.scope():
    rate = training.CosineRate(final_share=0.01)
    rate.set(
      section.coder_rate * learning_rate_factor(config, strategy),
      steps=epochs * steps,
      warmup=0,
    )
    coder.compile(training.adam(rate, clip_norm=1.0))

  def batches(epochs: range, share: stream.Share) -> tf.data.Dataset:
    pairs = examples.training_batches(
      batch_size=size,
      epochs=epochs,
      seed=seed,
      augment=Augmentation(0),
      share=share,
    )
    ids = share.numbers(range(epochs.start * steps, epochs.stop * steps))
    return tf.data.Dataset.zip((pairs, ids)).map(
      lambda pair, number: (
        *pair,
        tf.random.experimental.stateless_fold_in(seed, number),
      )
    )

  name = f"step-{step:03d}"
  training.fit(
    coder,
    training.Fit(
      epochs=epochs,
      steps_per_epoch=steps,
      batches=batches,
      checkpoints=state / "checkpoints" / name / "coder",
      tensorboard=state / "tensorboard" / name / "coder",
      title=f"coder, step {step}",
    ),
  )


def in_batches(function, values: np.ndarray) -> np.ndarray:
  """Applies a function of tensors to an array of any length."""
  parts = [
    function(tf.constant(values[start : start + _BATCH])).numpy()
    for start in range(0, len(values), _BATCH)
  ]
  return np.concatenate(parts) if parts else function(values).numpy()
