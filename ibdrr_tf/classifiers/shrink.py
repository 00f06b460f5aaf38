"""Takes a class out of a classifier's head."""

import numpy as np

from ibdrr_tf.classifiers.classifier import Classifier, copy_weights
from ibdrr_tf.classifiers.cosine import Cosines

__all__ = ["without_class"]


def without_class(old: Classifier, new: Classifier, label: int) -> None:
  """Copies a classifier into one that lacks a class; later labels move up.

  Args:
    old: with a linear or a cosine head.
    new: of the same kind, with one class less.
    label: the class to leave out.
  """
  copy_weights(old.embed, new.embed)
  head = {layer.name: layer for layer in old.layers}
  for layer in new.layers:
    if layer.name in {shared.name for shared in new.embed.layers}:
      continue
    if isinstance(layer, Cosines):
      weights = head[layer.name].class_weights.numpy()
      places = layer.proxies * label + np.arange(layer.proxies)
      weights = np.delete(weights, places, axis=1)
      fixed = layer.fixed_kernel.shape[1]
      layer.set_weights([weights[:, fixed:], weights[:, :fixed]])
      continue
    layer.set_weights(
      [
        before if before.shape == now.shape else np.delete(before, label, -1)
        for before, now in zip(
          head[layer.name].get_weights(), layer.get_weights(), strict=True
        )
      ]
    )
