"""Mnemonics: exemplars whose pixels are learned, filters that are scaled."""

import functools
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifier_training import Network, augmentation_of
from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.classifiers.scaled_conv import ScaledConv2D
from ibdrr_tf.data import stream
from ibdrr_tf.data.task import Task
from ibdrr_tf.methods.lucir import cosine_network, imprinted, lucir_objective
from ibdrr_tf.methods.method import Method, Step, nearest_mean
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = [
  "MNEMONICS",
  "kl_distillation",
  "learn_pixels",
  "nearest_mean_loss",
]

_PIXELS = 2  # folded into the seed; classifier_training has 0 and 1


def kl_distillation(
  old_logits: tf.Tensor,
  logits: tf.Tensor,
  temperature: float,
  beta: float,
) -> tf.Tensor:
  """KL(old || new) of softened outputs times T^2, beta and the old classes.

  The released code takes the mean over images *and* classes and then multiplies
  by the number of old classes; that is the sum over classes, as here.

  Args:
    old_logits: float32 [b, old classes], of the old network.
    logits: float32 [b, old classes], of the new one.
    temperature: T.
    beta: the weight.
  """
  old = tf.stop_gradient(old_logits) / temperature
  log_old = tf.nn.log_softmax(old)
  log_new = tf.nn.log_softmax(logits / temperature)
  divergence = tf.reduce_sum(tf.exp(log_old) * (log_old - log_new), axis=1)
  return beta * temperature**2 * losses.batch_mean(divergence)


def nearest_mean_loss(
  features: tf.Tensor, labels: tf.Tensor, means: tf.Tensor
) -> tf.Tensor:
  """Cross-entropy of unscaled cosines between images and class means.

  Args:
    features: float32 [b, d], of any norm.
    labels: int [b].
    means: float32 [classes, d], of any norm.
  """
  unit = tf.math.l2_normalize(features, axis=1)
  directions = tf.math.l2_normalize(means, axis=1)
  cosines = tf.matmul(unit, directions, transpose_b=True)
  return losses.cross_entropy(labels, cosines)


# Keeps gradients from vanishing in a network of float16. A power of two changes
# nothing in float32.
_SCALE = 2.0**12


def learn_pixels(
  classifier: classifiers.Classifier,
  exemplars: tuple[np.ndarray, np.ndarray],
  old_means: np.ndarray,
  queries: tf.data.Dataset,
  *,
  rate: float,
  momentum: float,
) -> np.ndarray:
  """Moves the pixels of exemplars so that their means name the queries.

  Args:
    classifier: frozen.
    exemplars: of the new classes: images uint8 [n, h, w, 3], labels int [n];
      labels are the numbers that follow those of the old classes.
    old_means: float32 [old classes, d], of exemplars that stay as they are.
    queries: batches of (images uint8 [b, h, w, 3], labels int [b]).
    rate: of SGD, in the network's units, of which 64 grey levels make one.
    momentum: of SGD.

  Returns:
    uint8 [n, h, w, 3].
  """
  images, labels = exemplars
  scale = classifier.get_layer("scale")
  features = classifier.get_layer("features").output
  # Entered behind the byte input, which has no gradient.
  embed_pixels = tf.keras.Model(scale.output, features)
  embed = classifier.embed
  pixels = tf.Variable(images * np.float32(scale.scale) + scale.offset)
  optimizer = tf.keras.optimizers.SGD(rate, momentum, jit_compile=False)
  optimizer.build([pixels])
  places = tf.constant(labels - len(old_means))
  count = int(labels.max()) + 1 - len(old_means)

  @tf.function
  def step(query: tf.Tensor, query_labels: tf.Tensor) -> None:
    wanted = embed(query, training=False)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(pixels)
      new = embed_pixels(pixels, training=False)
      means = tf.math.unsorted_segment_mean(new, places, count)
      means = tf.concat([tf.constant(old_means, tf.float32), means], axis=0)
      loss = _SCALE * nearest_mean_loss(wanted, query_labels, means)
    gradient = tape.gradient(loss, pixels) / _SCALE
    optimizer.apply_gradients([(gradient, pixels)])

  for batch in queries:
    step(*batch)
  levels = (pixels.numpy() - scale.offset) / scale.scale
  return np.clip(np.rint(levels), 0, 255).astype(np.uint8)


def _network(old_classes: int, first: bool) -> dict[str, Any]:
  """Convolutions that learn in the first step, and later only adapt."""
  conv = functools.partial(ScaledConv2D, adapting=not first)
  return {**cosine_network(old_classes, first), "conv": conv}


def _objective(step: Step, classifier: classifiers.Classifier):
  """LUCIR's losses; or cross-entropy and the distillation of old logits."""
  if step.old is None:
    return None
  if step.section.loss == "lucir":
    return lucir_objective(step, classifier)
  config, teacher = step.section, step.old.classifier
  old = teacher.classes

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits),
      "distillation": kl_distillation(
        teacher(images, training=False),
        logits[:, :old],
        config.temperature,
        config.beta,
      ),
    }
    return parts, logits

  return objective, ("cross_entropy", "distillation")


def _refine(
  memory: ExemplarMemory,
  task: Task,
  network: Network,
  images: np.ndarray,
  labels: np.ndarray,
) -> np.ndarray:
  """Learns the pixels of the new classes' exemplars; the same every time."""
  config, section = memory.config, memory.config[memory.config.method]
  is_new = labels >= task.old_classes
  if not is_new.any():
    return images
  queries = memory.examples(task).training_batches(
    batch_size=config.classifier.batch_size,
    epochs=range(section.pixel_epochs),
    seed=stream.fold_in(config.seed, task.step, _PIXELS),
    augment=augmentation_of(config),
  )
  size = network.classifier.embed.output_shape[-1]
  old_means = np.zeros([0, size], np.float32)
  if task.old_classes:
    old_means = memory.means(network)
  learned = learn_pixels(
    network.classifier,
    (images[is_new], labels[is_new]),
    old_means,
    queries,
    rate=section.pixel_rate,
    momentum=section.pixel_momentum,
  )
  images = images.copy()
  images[is_new] = learned
  return images


# Liu et al. (2020), on LUCIR's cosine head, imprinting and schedule. After the
# first step the convolutions' weights are those of the first step; a scale for
# each filter and a shift for each channel are learned, and batch normalisation
# as ever (the released layers have no shift). Two losses: `mnemonics.loss =
# lucir`, the default, is the row of the paper's table, "built upon LUCIR", with
# the weights of the section `lucir`; `released` is cross-entropy plus
# distillation, all that the released code has. Its README gives 54.21 % for the
# network's output and 60.01 % for the nearest mean of exemplars over 5 phases,
# where the paper has 63.3: reports give both predictions.
#
# Exemplars start from herding, and their pixels are learned: SGD over the data
# of the step, so that images are close to the mean of their class' exemplars.
# Only the exemplars of the new classes change, once. The paper describes a
# bilevel optimisation, through a classifier trained on the exemplars, and also
# adjusts old exemplars; the released code does the single-level form, and that
# is what is here. So are its old-class weights, which do not learn.
#
# At the released code's rate of 1e-5 pixels move by far less than one grey
# level, so what is kept as bytes are the herded images themselves; a larger
# `mnemonics.pixel_rate` does change them.
MNEMONICS = Method(
  memory=functools.partial(ExemplarMemory, selected="herding", refine=_refine),
  start=imprinted,
  objective=_objective,
  also={"nearest mean of exemplars": nearest_mean},
  network=_network,
  needs_old_network=True,
  own_schedule=True,
  frozen_gradients=True,  # Of the pixels.
)
