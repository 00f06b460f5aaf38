"""Training speed of a classifier by its width and by what it computes in."""

import time

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers.classifier import build_classifier
from ibdrr_tf.classifiers.optimizer import L2SGD

__all__ = ["measure"]

_BATCH, _CLASSES, _SIZE = 128, 20, 32
_WARM_UP = 2  # steps before the clock starts: they build graphs


def measure(
  widths: tuple[int, ...], precisions: tuple[str, ...], steps: int
) -> dict[str, dict[str, float]]:
  """Images a second of a ResNet-18 on 32 x 32 pixels, on random images.

  Args:
    widths: channels of the first stage.
    precisions: keys of `choices.PRECISIONS`.
    steps: updates to time.

  Returns:
    For each width, images a second by precision.
  """
  return {
    f"width {width}": {name: _speed(width, name, steps) for name in precisions}
    for width in widths
  }


def _speed(width: int, precision: str, steps: int) -> float:
  generator = np.random.default_rng(0)
  shape = (_BATCH, _SIZE, _SIZE, 3)
  images = tf.constant(generator.integers(0, 256, shape, np.uint8))
  labels = tf.constant(generator.integers(0, _CLASSES, _BATCH))
  classifier = build_classifier(
    backbone="resnet18",
    width=width,
    image_shape=shape[1:],
    classes=_CLASSES,
    precision=precision,
  )
  classifier.compile(
    L2SGD(0.1, momentum=0.9, l2=5e-4, jit_compile=False),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  batches = tf.data.Dataset.from_tensors((images, labels)).repeat()
  classifier.fit(batches, steps_per_epoch=_WARM_UP, verbose=0)
  started = time.perf_counter()
  classifier.fit(batches, steps_per_epoch=steps, verbose=0)
  taken = time.perf_counter() - started
  tf.keras.backend.clear_session()
  return _BATCH * steps / taken
