import numpy as np
import tensorflow as tf
from tiny_step import make_examples, pixels

from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.replay.second_stream import draw_beside


def drawn(ids, seed=0):
  """Two draws beside each of some batches of five."""
  other = make_examples({0: 3, 1: 4}, (1,))
  first = tf.data.Dataset.range(len(ids)).map(
    lambda k: (tf.zeros([5, 16, 16, 3], tf.uint8), tf.zeros([5], tf.int32))
  )
  # Each image is told by its number.
  numbers = np.arange(len(other))
  batches = draw_beside(
    first,
    tf.data.Dataset.from_tensor_slices(np.array(ids, np.int64)),
    in_memory(pixels(other), other.labels),
    [other.labels, numbers],
    draws=2,
    seed=stream.fold_in(seed, 0),
    augment=Augmentation(0),
  )
  return other, list(batches.as_numpy_iterator())


def test_images_come_with_their_rows():
  other, batches = drawn(range(20))
  images, counts = pixels(other), np.zeros(len(other))
  for batch in batches:
    assert len(batch) == 2 + 2 * 3
    for shown, labels, numbers in (batch[2:5], batch[5:]):
      np.testing.assert_array_equal(labels, other.labels[numbers])
      for image, number in zip(shown, numbers, strict=True):
        flipped = images[number][:, ::-1]
        assert (image == images[number]).all() or (image == flipped).all()
      counts += np.bincount(numbers, minlength=len(other))
  # 200 draws of seven images: 28.6 each, give or take 5.
  assert counts.min() > 10 and counts.max() < 50


def test_draws_are_a_function_of_batch_and_seed():
  _, batches = drawn([0, 1, 0])
  _, others = drawn([0], seed=1)
  for a, b in zip(batches[0], batches[2], strict=True):
    np.testing.assert_array_equal(a, b)
  assert (batches[0][4] != batches[1][4]).any()
  assert (batches[0][4] != batches[0][7]).any()
  assert (batches[0][4] != others[0][4]).any()
