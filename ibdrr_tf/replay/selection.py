"""Which images of a class to keep when not all can be kept."""

import numpy as np

__all__ = ["SELECTIONS", "herd", "pick_random"]

SELECTIONS = ("random", "herding")


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
  norms = np.linalg.norm(features, axis=1, keepdims=True)
  features = features / np.maximum(norms, 1e-12)
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


def pick_random(
  available: int, count: int, seed: tuple[int, ...]
) -> np.ndarray:
  """Picks images at random, as a function of the seed alone.

  Args:
    available: number of images of the class.
    count: how many to pick; all of them if there are fewer.
    seed: e.g. (run's seed, label).

  Returns:
    int64 [min(count, available)], sorted.
  """
  generator = np.random.default_rng(seed)
  picked = generator.permutation(available)[:count]
  return np.sort(picked).astype(np.int64)
