import numpy as np

from ibdrr_tf.replay import product_quantizer


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_each_part_has_its_nearest_entry():
  vectors, books = normal(50, 6), normal(3, 7, 2, seed=1)
  codes = product_quantizer.encode(vectors, books)
  assert codes.dtype == np.uint8 and codes.shape == (50, 3)
  for number in range(3):
    part = vectors[:, 2 * number : 2 * number + 2]
    distances = ((part[:, None] - books[number]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(codes[:, number], distances.argmin(axis=1))
  decoded = product_quantizer.decode(codes, books)
  np.testing.assert_array_equal(decoded[:, 2:4], books[1][codes[:, 1]])


def test_as_many_vectors_as_entries_come_back():
  vectors = normal(8, 4)
  books = product_quantizer.fit(vectors, 2, 8, seed=0)
  assert books.shape == (2, 8, 2)
  codes = product_quantizer.encode(vectors, books)
  again = product_quantizer.decode(codes, books)
  np.testing.assert_allclose(again, vectors, atol=1e-6)


def test_codebooks_find_the_means_of_clusters():
  centers = np.array([[0, 0], [9, 0], [0, 9], [9, 9]], np.float32)
  vectors = np.repeat(centers, 50, axis=0) + 0.1 * normal(200, 2)
  for seed in range(3):
    books = product_quantizer.fit(vectors, 2, 16, seed)
    again = product_quantizer.decode(
      product_quantizer.encode(vectors, books), books
    )
    assert np.abs(again - vectors).max() < 0.6
  np.testing.assert_array_equal(
    books, product_quantizer.fit(vectors, 2, 16, seed)
  )


def test_fewer_vectors_than_entries():
  vectors = normal(3, 2)
  books = product_quantizer.fit(vectors, 2, 8, seed=0)
  assert books.shape == (1, 8, 2) and np.isfinite(books).all()
  assert product_quantizer.encode(vectors[:0], books).shape == (0, 1)
