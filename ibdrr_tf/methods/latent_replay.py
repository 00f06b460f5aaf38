"""Latent replay and REMIND: memory of what an inner stage has seen."""

import dataclasses
import functools
from typing import Any

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.latent_memory import LatentMemory
from ibdrr_tf.replay.second_stream import draw_beside

__all__ = ["LATENT_REPLAY", "REMIND", "mixed"]

_DRAWS = 9  # folded into the seed; classifier_training has 8


def mixed(first: tf.Tensor, second: tf.Tensor, shares: tf.Tensor) -> tf.Tensor:
  """Mixup: shares of the first, the rest of the second.

  Args:
    first: float32 [b, …].
    second: float32 [b, …].
    shares: float32 [b], from 0 to 1.
  """
  shares = tf.reshape(shares, [-1] + [1] * (len(first.shape) - 1))
  return shares * first + (1.0 - shares) * second


def _network(old_classes: int, first: bool) -> dict[str, Any]:
  """Lower stages learn in the first step, and later stay as they are."""
  return {"frozen_below": not first}


def _extra_inputs(
  step: Step, batches: tf.data.Dataset, ids: tf.data.Dataset
) -> tf.data.Dataset:
  """Adds two draws of latents with their labels, and shares to mix them by."""
  latents, labels = step.memory.read()
  with tf.device("/CPU:0"):
    table = tf.constant(latents)
  kept = Examples(labels, latents.shape[1:], lambda k: tf.gather(table, k))
  seed = stream.fold_in(step.config.seed, step.task.step, _DRAWS)
  drawn = draw_beside(
    batches, ids, kept, [labels], draws=2, seed=seed, augment=None
  )
  mixup = step.section.mixup

  def add(number: tf.Tensor, batch: tuple) -> tuple:
    count = tf.shape(batch[1])[0]
    if not mixup:
      return *batch, tf.ones([count])
    # A beta distribution, from two of gamma.
    seeds = tf.random.experimental.stateless_split(
      tf.random.experimental.stateless_fold_in(seed, -1 - number), 2
    )
    one, other = (
      tf.random.stateless_gamma([count], seeds[k], mixup) + 1e-12
      for k in (0, 1)
    )
    return *batch, one / (one + other)

  return tf.data.Dataset.zip((ids, drawn)).map(add, tf.data.AUTOTUNE)


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy of new images, and of latents that enter in the middle."""
  if step.old is None:
    return None
  stage = step.memory.stage
  lower = classifier.up_to(stage)
  inner = classifier.get_layer(stage).output
  upper = tf.keras.Model(inner, classifier.get_layer("logits").output)

  def objective(images, labels, *drawn) -> tuple:
    first, first_labels, second, second_labels, shares = drawn
    replayed = mixed(
      tf.cast(first, tf.float32), tf.cast(second, tf.float32), shares
    )
    new = lower(images, training=False)
    entered = tf.concat([new, tf.cast(replayed, new.dtype)], axis=0)
    logits = upper(entered, training=True)
    size, classes = tf.shape(labels)[0], logits.shape[-1]
    wanted = mixed(
      tf.one_hot(first_labels, classes),
      tf.one_hot(second_labels, classes),
      shares,
    )
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits[:size]),
      "replayed": losses.batch_mean(
        tf.nn.softmax_cross_entropy_with_logits(wanted, logits[size:])
      ),
    }
    return parts, logits[:size]

  return objective, ("cross_entropy", "replayed")


# Pellegrini et al. (2020), latent replay. After the first step the stages up to
# the last but one are frozen, batch statistics included; what leaves them is
# kept for some images of each class, as float16 numbers, and is drawn beside
# every batch of new images, as many as it has. The authors only slow the lower
# stages down, and replace a part of their memory at random in each step.
LATENT_REPLAY = Method(
  memory=functools.partial(LatentMemory, quantised=False),
  start=from_last,
  objective=_objective,
  network=_network,
  extra_inputs=_extra_inputs,
)
# Hayes et al. (2020), REMIND: latents are product-quantised, by codebooks of
# 256 entries for 16 channels each (32 codebooks of 512 channels), and mixed up
# two by two. The authors learn from one image at a time, each once, with 50
# replayed ones, and crop latents at random; here a step has epochs, as that of
# every other row, and latents are not cropped.
REMIND = dataclasses.replace(
  LATENT_REPLAY, memory=functools.partial(LatentMemory, quantised=True)
)
