"""What tests of memories of image files share."""

import numpy as np
import tensorflow as tf
from tiny_step import Onlooker

from ibdrr_tf.data.augment import Augmentation

AS_IT_IS = Augmentation(padding=0)


def keep(memory, *tasks):
  for task in tasks:
    memory.add(task, Onlooker())
    memory.settle()


def keys(images):
  return [image.tobytes() for image in images]


def prepared(feed):
  """All examples in order, as a batch sees them without augmentation."""
  batches = feed.training_batches(
    batch_size=500, epochs=range(1), seed=tf.constant([1, 2]), augment=AS_IT_IS
  )
  inputs, labels = next(iter(batches))
  # Neither crops nor flips; the share of raw images stays as it is drawn.
  drawn = inputs["drawn"] * tf.constant([[1, 0, 0, 0]])
  return feed.preparation(AS_IT_IS)({**inputs, "drawn": drawn}), labels.numpy()


def assert_own_twins(feed, count):
  """Each decoded image is much closer to its twin than to any other."""
  batch, _ = prepared(feed)
  with_twin = batch.has_raw.numpy()
  assert with_twin.sum() == count
  images, raw = (
    part.numpy()[with_twin].astype(int) for part in (batch.images, batch.raw)
  )
  error = np.abs(images[:, None] - raw[None]).mean(axis=(2, 3, 4))
  own, others = np.diag(error), error[~np.eye(len(error), dtype=bool)]
  assert own.max() < 15 < 25 < np.median(others)
  assert (error.argmin(axis=1) == np.arange(len(error))).all()
