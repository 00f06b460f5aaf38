"""A backbone with a head over all classes seen so far."""

import contextlib
import functools
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from ibdrr_tf.choices import PRECISIONS
from ibdrr_tf.classifiers import gradients, losses, resnet

__all__ = [
  "Classifier",
  "Objective",
  "build_classifier",
  "copy_weights",
  "fastest_precision",
  "grow_head",
  "linear_head",
  "plain",
]

_BACKBONE = re.compile(r"backbone_\d+_features")
# Channels that oneDNN's bfloat16 convolutions take at a time.
_BFLOAT16_CHANNELS = 16

# Maps a batch (images, labels, ...) to the parts of the loss, by name, each
# the mean over the batch, and to the logits that accuracy is measured with.
Objective = Callable[..., tuple[dict[str, tf.Tensor], tf.Tensor]]


class Classifier(tf.keras.Model):
  """A functional model from uint8 images to logits that also gives features.

  It learns by the loss that it is compiled with, or by an objective that looks
  at more than logits: see `set_objective`.

  Attributes:
    embed: the part of it up to the features, a Keras model that shares all
      its weights: uint8 [b, h, w, 3] -> float32 [b, features].
  """

  _objective: Objective | None = None
  _update: gradients.Update | None = None

  @property
  def embed(self) -> tf.keras.Model:
    """The convolutional part, whose output the paper calls r."""
    return self.up_to("features")

  @property
  def classes(self) -> int:
    """Number of classes that the head knows."""
    return self.output_shape[-1]

  @property
  def backbones(self) -> int:
    """Number of backbones, whose features the head sees side by side."""
    names = [layer.name for layer in self.layers]
    return max(1, sum(bool(_BACKBONE.fullmatch(name)) for name in names))

  def backbone(self, number: int) -> tf.keras.Model:
    """One of the backbones, a Keras model that shares its weights."""
    grown = self.backbones > 1
    return self.up_to(f"backbone_{number}_features" if grown else "features")

  def up_to(self, *names: str) -> tf.keras.Model:
    """A model with the same weights that gives the outputs of some layers."""
    outputs = [self.get_layer(name).output for name in names]
    return tf.keras.Model(
      self.inputs, outputs if len(outputs) > 1 else outputs[0]
    )

  def set_objective(self, objective: Objective, parts: Sequence[str]) -> None:
    """Says what to minimise: the sum of the parts of an objective.

    Args:
      objective: a function of a batch, called once on each replica.
      parts: names of the parts, which are also shown as metrics.
    """
    self._objective = objective
    self._losses_by_part = {
      name: tf.keras.metrics.Mean(name) for name in ("loss", *parts)
    }

  def set_update(self, update: gradients.Update) -> None:
    """Says how weights move, where not along the gradient of the whole loss.

    Args:
      update: see `gradients.Update`; called once on each replica.
    """
    self._update = update

  def compute_loss(
    self,
    x: Any = None,
    y: tf.Tensor | None = None,
    y_pred: tf.Tensor | None = None,
    sample_weight: tf.Tensor | None = None,
  ) -> tf.Tensor:
    """Keras' own, where replicas may have parts of different sizes.

    Keras takes a mean of the means of all parts.
    """
    loss = super().compute_loss(x, y, y_pred, sample_weight)
    size = tf.cast(tf.shape(y)[0], tf.float32)
    mean_size = losses.over_replicas(tf.distribute.ReduceOp.MEAN, size)
    return loss * size / mean_size

  def train_step(self, data: Any) -> dict[str, tf.Tensor]:
    """Takes one step on a batch."""
    if self._objective is None:
      return super().train_step(data)
    with tf.GradientTape(persistent=self._update is not None) as tape:
      parts, logits = self._objective(*data)
      loss = tf.add_n(list(parts.values()))
      # Gradients are summed over replicas.
      share = loss / tf.distribute.get_strategy().num_replicas_in_sync
    if self._update is None:
      self.optimizer.minimize(share, self.trainable_variables, tape=tape)
    else:
      gradients.update_by_parts(self, tape, parts, self._update)
    for name, value in {"loss": loss, **parts}.items():
      self._losses_by_part[name].update_state(value)
    self.compiled_metrics.update_state(data[1], logits)
    return {metric.name: metric.result() for metric in self.metrics}


def linear_head(features: tf.Tensor, classes: int) -> tf.Tensor:
  """Logits as a linear function of the features."""
  return tf.keras.layers.Dense(
    classes, kernel_initializer="he_normal", dtype=tf.float32, name="logits"
  )(features)


def build_classifier(
  *,
  backbone: str,
  width: int,
  image_shape: tuple[int, int, int],
  classes: int,
  synchronized: bool = False,
  kind: type[Classifier] = Classifier,
  head: Callable[[tf.Tensor, int], tf.Tensor] = linear_head,
  precision: str = "float32",
  backbones: int = 1,
  frozen_below: bool = False,
  **options: Any,
) -> Classifier:
  """Builds a classifier with new random weights, within the current scope.

  Args:
    backbone: a key of `resnet.BACKBONES`.
    width: channels of the first stage.
    image_shape: (height, width, 3).
    classes: number of logits.
    synchronized: whether batch statistics are taken over all replicas.
    kind: the class to make, which says how it is trained.
    head: maps features and the number of classes to logits.
    precision: a key of `PRECISIONS`, in which the backbone computes. Weights
      and logits, and so losses, are float32 all the same; with float16
      `compile` scales the loss so that small gradients are not lost.
    backbones: how many; all but the last are frozen.
    frozen_below: whether all layers up to the inner stage are frozen.
    **options: of the backbone: `last_relu`, `conv`.
  """
  images = tf.keras.Input(image_shape, dtype=tf.uint8, name="images")
  with _policy(PRECISIONS[precision]):
    # Images reach the network as bytes and are scaled here, so that a saved
    # classifier carries its own preprocessing.
    x = tf.keras.layers.Rescaling(1 / 64, offset=-2, name="scale")(images)
    make = functools.partial(
      resnet.BACKBONES[backbone],
      width=width,
      synchronized=synchronized,
      **options,
    )
    x = make(x) if backbones == 1 else _side_by_side(x, backbones, make)
    classifier = kind(images, head(x, classes), name=backbone)
  frozen = [classifier.backbone(number) for number in range(backbones - 1)]
  if frozen_below:
    frozen.append(classifier.up_to(resnet.inner_stage(backbone)))
  for part in frozen:
    for layer in part.layers:
      layer.trainable = False
  return classifier


def _side_by_side(
  x: tf.Tensor, count: int, make: Callable[..., tf.Tensor]
) -> tf.Tensor:
  """Features of several backbones, the newest last."""
  parts = [make(x, prefix=f"backbone_{number}_") for number in range(count)]
  return tf.keras.layers.Concatenate(dtype=tf.float32, name="features")(parts)


def fastest_precision(width: int) -> str:
  """What "auto" means here: float16 on GPUs, bfloat16 on CPUs that gain by it.

  On an AMD EPYC with AVX512-BF16, one core trains a ResNet-18 of width 8, 12,
  16 or 24 on 485, 276, 506 or 150 images/s in bfloat16, and on 1,035, 419, 371
  or 152 in float32: oneDNN has fast bfloat16 convolutions for blocks of 16
  channels only.

  Args:
    width: channels of the first stage.
  """
  if tf.config.list_physical_devices("GPU"):
    return "float16"
  if width % _BFLOAT16_CHANNELS:
    return "float32"
  try:
    flags = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
  except OSError:  # Not Linux.
    return "float32"
  has_bfloat16 = re.search(r"\b(avx512_bf16|amx_bf16)\b", flags)
  return "bfloat16" if has_bfloat16 else "float32"


@contextlib.contextmanager
def _policy(policy: str) -> Iterator[None]:
  """Sets Keras' policy for what is made within, e.g. "mixed_float16"."""
  before = tf.keras.mixed_precision.global_policy()
  tf.keras.mixed_precision.set_global_policy(policy)
  try:
    yield
  finally:
    tf.keras.mixed_precision.set_global_policy(before)


def copy_weights(old: tf.keras.Model, new: tf.keras.Model) -> None:
  """Copies weights between models of the same layers, layer by layer.

  Unlike `set_weights` it goes by the weights' names, so that it does not matter
  which of them are trainable in which model.
  """
  for source, target in zip(old.layers, new.layers, strict=True):
    values = {_short_name(weight): weight for weight in source.weights}
    for weight in target.weights:
      weight.assign(values[_short_name(weight)].numpy())


def _short_name(weight: tf.Variable) -> str:
  return weight.name.split("/")[-1].split(":")[0]


def grow_head(old: Classifier, new: Classifier) -> None:
  """Copies a classifier into one with more classes; new logits stay random."""
  old_kernel, old_bias = old.get_layer("logits").get_weights()
  kernel, bias = new.get_layer("logits").get_weights()
  kernel[:, : old.classes] = old_kernel
  bias[: old.classes] = old_bias
  new.embed.set_weights(old.embed.get_weights())
  new.get_layer("logits").set_weights([kernel, bias])


def plain(classifier: Classifier) -> tf.keras.Model:
  """A copy made of Keras' own layers only, in float32, on one device.

  Once saved, `tf.keras.models.load_model` needs nothing of this package for it.
  Layers of this package say what they amount to after training, by `plain()`
  and `plain_weights()`. The copy refuses images that are not whole numbers
  within 0..255: Keras casts any array to the type of an input, without a word.
  """
  network = tf.keras.Model(classifier.inputs, classifier.outputs)

  def twin(layer: tf.keras.layers.Layer) -> tf.keras.layers.Layer:
    layer = layer.plain() if hasattr(layer, "plain") else layer
    return layer.__class__.from_config(
      layer.get_config() | {"dtype": "float32"}
    )

  copy = _with_checked_input(
    tf.keras.models.clone_model(network, clone_function=twin)
  )
  for layer in network.layers:
    is_ours = hasattr(layer, "plain")
    weights = layer.plain_weights() if is_ours else layer.get_weights()
    copy.get_layer(layer.name).set_weights(weights)
  return copy


def _with_checked_input(network: tf.keras.Model) -> tf.keras.Model:
  """Builds the network anew, with new weights, behind `_check_bytes`."""
  images = tf.keras.Input(network.input_shape[1:], name="images")
  check = tf.keras.Model(images, _check_bytes(images)).get_config()
  config = network.get_config()
  # The configurations are joined, because a model that is called as a layer
  # would hide its own layers from whoever loads the classifier.
  first, *rest = config["layers"]
  for layer in rest:
    if layer["inbound_nodes"] == [[[first["name"], 0, 0, {}]]]:
      layer["inbound_nodes"] = [[[*check["output_layers"][0], {}]]]
  config["layers"] = check["layers"] + rest
  config["input_layers"] = check["input_layers"]
  return tf.keras.Model.from_config(config)


def _check_bytes(images: tf.Tensor) -> tf.Tensor:
  """Raises unless images, float32 [b, h, w, 3], are whole numbers in 0..255.

  Of the assertions only `check_numerics` can be part of a Keras model: it has a
  result. So every pixel that is not a byte is made infinite first.
  """
  bytes_ = tf.clip_by_value(tf.round(images), 0.0, 255.0)
  is_byte = tf.cast(tf.equal(images, bytes_), tf.float32)
  return tf.debugging.check_numerics(
    tf.divide(images, is_byte),
    "images are not whole numbers 0..255: give uint8, e.g. "
    "(255 * images).astype('uint8') if they lie in 0..1",
    name="whole_numbers",
  )
