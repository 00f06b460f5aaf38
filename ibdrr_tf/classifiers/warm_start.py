"""Starts from old weights without being caught in them: shrink and perturb."""

import numpy as np

from ibdrr_tf.classifiers.classifier import Classifier, grow_head

__all__ = ["shrink_perturb"]


def shrink_perturb(
  old: Classifier, new: Classifier, shrink: float, perturb: float
) -> None:
  """Sets a classifier's weights to shrink * old + perturb * random ones.

  Ash and Adams (2020), "On warm-starting neural network training": a network
  that goes on from its last weights generalises worse than one from scratch;
  one whose weights are shrunk and perturbed does not, and learns faster. The
  perturbation is a small network as it is initialised, so that each layer gets
  noise of its own scale. Scales, shifts and statistics of batch normalisation
  are taken over as they are.

  Args:
    old: with the first of the new one's classes.
    new: changed in place; its weights are random.
    shrink: what is kept of old kernels.
    perturb: what is added of random ones.
  """
  random = new.get_weights()
  grow_head(old, new)
  new.set_weights(
    [
      shrink * grown + perturb * noise if np.ndim(grown) > 1 else grown
      for grown, noise in zip(new.get_weights(), random, strict=True)
    ]
  )
