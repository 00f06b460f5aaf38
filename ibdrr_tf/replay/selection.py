"""Which images of a class to keep, and the mean that stands for them."""

import numpy as np

__all__ = [
  "class_means",
  "herd",
  "random_order",
  "sparsest",
  "true_shares",
]


def herd(features: np.ndarray, count: int) -> np.ndarray:
  """Picks the images whose running mean stays closest to the class mean.

  Herding as in iCaRL's released code: with normalised features and their mean
  mu, repeatedly take the image with the largest dot product with w, where w
  starts at mu and grows by mu minus the feature just taken.

  Args:
    features: float [n, d] of one class, of any norm.
    count: how many to pick; all of them if there are fewer.

  Returns:
    int64 [min(count, n)], in the order of picking, each at most once.
  """
  features = _unit(features)
  mean = features.mean(axis=0)
  wanted = mean.copy()
  left = np.ones(len(features), bool)
  picked = []
  for _ in range(min(count, len(features))):
    best = int(np.argmax(np.where(left, features @ wanted, -np.inf)))
    picked.append(best)
    left[best] = False
    wanted += mean - features[best]
  return np.array(picked, np.int64)


def random_order(available: int, seed: tuple[int, ...]) -> np.ndarray:
  """The order in which random images are picked: int64 [available]."""
  return np.random.default_rng(seed).permutation(available).astype(np.int64)


def true_shares(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
  """Probabilities of the true classes, float64 [n].

  Args:
    logits: float [n, classes].
    labels: int [n].
  """
  logits = logits.astype(np.float64)
  shares = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-1e300))
  true = shares[np.arange(len(labels)), labels]
  return true / shares.sum(axis=1)


def sparsest(features: np.ndarray) -> np.ndarray:
  """Ranks images by coverage: those with few neighbours come first.

  Again and again the image with most neighbours among the others leaves; the
  last to leave is ranked first. Neighbours are nearer than half the median
  distance of two images of the class. The paper does not give a distance.

  Args:
    features: float [n, d] of one class, of any norm.

  Returns:
    int64 [n].
  """
  unit = _unit(features.astype(np.float32))
  squares = np.maximum(2.0 - 2.0 * unit @ unit.T, 0.0)
  pairs = squares[np.triu_indices(len(unit), 1)]
  limit = np.median(pairs) / 4 if len(pairs) else 0.0
  near = squares < limit
  np.fill_diagonal(near, False)
  neighbours = near.sum(axis=1)
  left = []
  for _ in range(len(unit)):
    crowded = int(np.argmax(neighbours))
    left.append(crowded)
    neighbours -= near[crowded]
    neighbours[crowded] = -len(unit) - 1  # It has left.
  return np.array(left[::-1], np.int64)


def class_means(
  features: np.ndarray, flipped: np.ndarray, labels: np.ndarray
) -> np.ndarray:
  """The point that stands for each class.

  The renormalised average of two means: over the normalised features of a
  class' exemplars, and over those of their horizontal flips.

  Args:
    features: float32 [n, d], of any norm.
    flipped: float32 [n, d], of the flipped images.
    labels: int [n].

  Returns:
    float32 [classes, d], of unit norm; NaN for a class without images.
  """
  both = (_unit(features) + _unit(flipped)) / 2
  means = np.full([labels.max() + 1, both.shape[1]], np.nan, both.dtype)
  for label in np.unique(labels):
    means[label] = _unit(both[labels == label].mean(axis=0, keepdims=True))[0]
  return means


def _unit(vectors: np.ndarray) -> np.ndarray:
  lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
  return vectors / np.maximum(lengths, 1e-12)
