"""Residual networks for small images (He et al., 2016), as Keras graphs."""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ibdrr_tf.choices import FEATURES
from ibdrr_tf.errors import UserError

__all__ = [
  "BACKBONES",
  "inner_stage",
  "register_backbone",
  "resnet8",
  "resnet18",
  "resnet32",
]

layers = tf.keras.layers


def _conv_bn(
  x: tf.Tensor,
  filters: int,
  size: int,
  strides: int,
  synchronized: bool,
  conv: Callable[..., layers.Layer],
) -> tf.Tensor:
  x = conv(
    filters,
    size,
    strides,
    padding="same",
    use_bias=False,
    kernel_initializer="he_normal",
  )(x)
  # Keras' momentum is the share of the old value: .9 is PyTorch's .1.
  return layers.BatchNormalization(
    momentum=0.9, epsilon=1e-5, synchronized=synchronized
  )(x)


def _basic_block(
  x: tf.Tensor,
  filters: int,
  strides: int,
  conv_bn: Callable[..., tf.Tensor],
  last_relu: bool = True,
  name: str | None = None,
) -> tf.Tensor:
  """Two 3x3 convolutions beside a shortcut; 1x1 where the shape changes."""
  y = layers.ReLU()(conv_bn(x, filters, 3, strides))
  y = conv_bn(y, filters, 3, 1)
  if strides != 1:
    # The same as a 1x1 convolution with strides, whose gradient oneDNN (in
    # TensorFlow 2.14) gets wrong for 8 channels at 64 pixels: it corrupts
    # memory and the process dies.
    x = layers.MaxPool2D(1, strides)(x)
  if x.shape[-1] != filters:
    x = conv_bn(x, filters, 1, 1)
  if not last_relu:
    return layers.Add(name=name)([x, y])
  return layers.ReLU(name=name)(layers.Add()([x, y]))


def _residual_network(
  x: tf.Tensor,
  widths: list[int],
  blocks: int,
  synchronized: bool,
  last_relu: bool = True,
  conv: Callable[..., layers.Layer] = layers.Conv2D,
  stem: str = "small",
  prefix: str = "",
) -> tf.Tensor:
  """A stem, then one stage of blocks per width, then the mean over space.

  Args:
    x: float32 [b, h, w, 3].
    widths: channels of each stage; all but the first halve the resolution.
    blocks: blocks in each stage.
    synchronized: whether batch statistics are taken over all replicas.
    last_relu: whether features pass a last ReLU (LUCIR leaves it out).
    conv: makes the convolutions, with the arguments of Conv2D.
    stem: one of `choices.STEMS`: `small` is a 3x3 convolution, `large` shrinks
      images to a quarter by a 7x7 convolution and a maximum, as for ImageNet.
    prefix: of the names of layers, where a network has several backbones.

  Returns:
    Features, float32 [b, widths[-1]].
  """
  conv_bn = functools.partial(_conv_bn, synchronized=synchronized, conv=conv)
  is_large = stem == "large"
  x = conv_bn(x, widths[0], *((7, 2) if is_large else (3, 1)))
  x = layers.ReLU()(x)
  if is_large:
    x = layers.MaxPool2D(3, 2, padding="same")(x)
  for stage, filters in enumerate(widths):
    for block in range(blocks):
      ends_stage = block == blocks - 1
      is_last = ends_stage and stage == len(widths) - 1
      x = _basic_block(
        x,
        filters,
        strides=2 if stage and not block else 1,
        conv_bn=conv_bn,
        last_relu=last_relu or not is_last,
        name=f"{prefix}stage_{stage}" if ends_stage else None,
      )
  # In float32 whatever the rest computes in: losses are taken from here.
  name = f"{prefix}features"
  return layers.GlobalAveragePooling2D(dtype=tf.float32, name=name)(x)


def resnet18(
  x: tf.Tensor, width: int = 64, synchronized: bool = False, **options: Any
) -> tf.Tensor:
  """ResNet-18: four stages of two blocks."""
  widths = [width, 2 * width, 4 * width, 8 * width]
  return _residual_network(x, widths, 2, synchronized, **options)


def _cifar_resnet(
  x: tf.Tensor,
  width: int = 16,
  synchronized: bool = False,
  *,
  blocks: int,
  **options: Any,
) -> tf.Tensor:
  """The CIFAR ResNets: three stages of n blocks make 6n + 2 layers.

  Where the shape changes, the shortcut is a 1x1 convolution (option B), as in
  LUCIR's and Mnemonics' code.
  """
  widths = [width, 2 * width, 4 * width]
  return _residual_network(x, widths, blocks, synchronized, **options)


resnet8 = functools.partial(_cifar_resnet, blocks=1)
resnet32 = functools.partial(_cifar_resnet, blocks=5)

BACKBONES = {"resnet8": resnet8, "resnet18": resnet18, "resnet32": resnet32}


def inner_stage(backbone: str) -> str:
  """The layer that ends the last stage but one."""
  names = FEATURES[backbone]
  if len(names) < 3:
    raise UserError(
      f"the backbone {backbone!r} names no inner stages: register it with "
      f"features=(…, 'stage', 'last_stage', 'features')."
    )
  return names[-3]


def register_backbone(
  name: str, features: tuple[str, ...] = ("features",)
) -> Callable[[Callable[..., tf.Tensor]], Callable[..., tf.Tensor]]:
  """Adds a backbone to those that `classifier.backbone` knows.

  Usage, in a file of one's own that `--plugin=FILE.py` names:

  >>> @register_backbone("mine")
  ... def mine(x, width, synchronized, *, stem="small", **options):
  ...   return layers.GlobalAveragePooling2D(name="features")(…)

  Args:
    name: of the backbone.
    features: names of layers whose output can serve for Information Back; the
      last layer must be called "features".
  """

  def register(build: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    BACKBONES[name], FEATURES[name] = build, features
    return build

  return register
