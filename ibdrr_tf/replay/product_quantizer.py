"""Product quantisation: parts of vectors as numbers of codebook entries."""

import numpy as np

__all__ = ["decode", "encode", "fit"]

_ROUNDS = 12
# Vectors that are compared with all entries at a time.
_BATCH = 8192


def fit(
  vectors: np.ndarray, dimensions: int, entries: int, seed: int
) -> np.ndarray:
  """Learns a codebook for each part of some vectors, by k-means.

  Args:
    vectors: float [n, d].
    dimensions: of a part; they divide d.
    entries: of each codebook, at most 256.
    seed: of the first entries, which are vectors chosen at random.

  Returns:
    float32 [d / dimensions, entries, dimensions].
  """
  generator = np.random.default_rng(seed)
  chosen = generator.choice(len(vectors), entries, len(vectors) < entries)
  books = _parts(vectors[chosen], dimensions).swapaxes(0, 1).copy()
  parts = _parts(vectors, dimensions)
  for _ in range(_ROUNDS):
    codes = encode(vectors, books)
    for number, book in enumerate(books):
      counts = np.bincount(codes[:, number], minlength=entries)
      for axis in range(dimensions):
        sums = np.bincount(
          codes[:, number], parts[:, number, axis], minlength=entries
        )
        # An entry that nothing is near to stays where it is.
        book[:, axis] = np.where(
          counts, sums / np.maximum(counts, 1), book[:, axis]
        )
  return books


def encode(vectors: np.ndarray, books: np.ndarray) -> np.ndarray:
  """The nearest entry of each part: uint8 [n, parts].

  Args:
    vectors: float [n, d].
    books: of `fit`.
  """
  parts = _parts(vectors, books.shape[2])
  codes = np.zeros(parts.shape[:2], np.uint8)
  for start in range(0, len(parts), _BATCH):
    batch = parts[start : start + _BATCH]
    for number, book in enumerate(books):
      closeness = batch[:, number] @ book.T - (book**2).sum(axis=1) / 2
      codes[start : start + _BATCH, number] = closeness.argmax(axis=1)
  return codes


def decode(codes: np.ndarray, books: np.ndarray) -> np.ndarray:
  """The vectors of codes, uint8 [n, parts]: float32 [n, d]."""
  parts = [book[codes[:, number]] for number, book in enumerate(books)]
  return np.concatenate(parts, axis=1)


def _parts(vectors: np.ndarray, dimensions: int) -> np.ndarray:
  """float32 [n, d / dimensions, dimensions]."""
  count, size = vectors.shape
  parts = np.asarray(vectors, np.float32)
  return parts.reshape(count, size // dimensions, dimensions)
