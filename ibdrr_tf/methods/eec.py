"""EEC: codes of autoencoders that become clusters when bytes are scarce."""

import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import losses
from ibdrr_tf.methods.method import Method, Step, from_last
from ibdrr_tf.replay.episode_memory import EpisodeMemory

__all__ = ["EEC"]


def _objective(step: Step, classifier: classifiers.Classifier):
  """Cross-entropy in which classes that are reconstructed weigh less."""
  if step.old is None:
    return None
  weights = tf.constant(step.memory.class_weights(step.task.classes))

  def objective(images: tf.Tensor, labels: tf.Tensor) -> tuple:
    logits = classifier(images, training=True)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    weighed = losses.batch_mean(tf.gather(weights, labels) * each)
    return {"cross_entropy": weighed}, logits

  return objective, ("cross_entropy",)


# Ayub and Wagner (2021), as in the released code. Each step trains an
# autoencoder on its new images by (1 - lambda) * squared error of pixels +
# lambda * distance in the features of the classifier, and keeps the codes. The
# classifier learns from new images and from all reconstructed ones, whose loss
# is weighed by exp(-(1 - a / b)): a and b are its accuracies on reconstructions
# and on the raw images, after the step that brought them. Where a byte budget
# is reached, codes become clusters by k-means, with diagonal covariances, from
# which pseudo-codes are drawn. Codes have 8 bits a number, the authors' 32; the
# decoder of each step is kept and counted, its encoder is not needed any more.
# New raw images of a known class weigh as much as its reconstructions. Pseudo-
# images are not filtered, and labels are not smoothed.
EEC = Method(
  memory=EpisodeMemory,
  start=from_last,
  objective=_objective,
  frozen_gradients=True,  # Of the autoencoder, through the classifier.
)
