"""A backbone with a head over all classes seen so far."""

import tensorflow as tf

from ibdrr_tf.classifiers import resnet

__all__ = ["Classifier", "build_classifier", "grow_head", "save_classifier"]


class Classifier(tf.keras.Model):
  """A functional model from uint8 images to logits that also gives features.

  Attributes:
    embed: the part of it up to the features, a Keras model that shares all
      its weights: uint8 [b, h, w, 3] -> float32 [b, features].
  """

  @property
  def embed(self) -> tf.keras.Model:
    """The convolutional part, whose output the paper calls r."""
    return tf.keras.Model(self.inputs, self.get_layer("features").output)

  @property
  def classes(self) -> int:
    """Number of classes that the head knows."""
    return self.output_shape[-1]


def build_classifier(
  *,
  backbone: str,
  width: int,
  image_shape: tuple[int, int, int],
  classes: int,
  synchronized: bool = False,
  kind: type[Classifier] = Classifier,
) -> Classifier:
  """Builds a classifier with new random weights, within the current scope.

  Args:
    backbone: a key of `resnet.BACKBONES`.
    width: channels of the first stage.
    image_shape: (height, width, 3).
    classes: number of logits.
    synchronized: whether batch statistics are taken over all replicas.
    kind: the class to make, which says how it is trained.
  """
  images = tf.keras.Input(image_shape, dtype=tf.uint8, name="images")
  # Images reach the network as bytes and are scaled here, so that a saved
  # classifier carries its own preprocessing.
  x = tf.keras.layers.Rescaling(1 / 64, offset=-2, name="scale")(images)
  x = resnet.BACKBONES[backbone](x, width, synchronized)
  logits = tf.keras.layers.Dense(
    classes, kernel_initializer="he_normal", dtype=tf.float32, name="logits"
  )(x)
  return kind(images, logits, name=backbone)


def grow_head(old: Classifier, new: Classifier) -> None:
  """Copies a classifier into one with more classes; new logits stay random."""
  old_kernel, old_bias = old.get_layer("logits").get_weights()
  kernel, bias = new.get_layer("logits").get_weights()
  kernel[:, : old.classes] = old_kernel
  bias[: old.classes] = old_bias
  new.embed.set_weights(old.embed.get_weights())
  new.get_layer("logits").set_weights([kernel, bias])


def save_classifier(classifier: Classifier, path: str) -> None:
  """Saves the network, without its training state, in Keras' own format.

  It is made of Keras' own layers only, so that `tf.keras.models.load_model`
  needs nothing of this package.
  """
  tf.keras.Model(classifier.inputs, classifier.outputs).save(path)
