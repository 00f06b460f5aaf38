"""Seeds Keras, on Python 3.12 as well."""

import random
import sys

import tensorflow as tf

__all__ = ["set_random_seed"]


class _Generator(random.Random):
  """Takes whole floats as bounds, as Python did before 3.12.

  Keras draws the seeds of its initializers by `randint(1, 1e9)`.
  """

  def randint(self, a: float, b: float) -> int:
    return super().randint(int(a), int(b))


def set_random_seed(seed: int) -> None:
  """Does what `tf.keras.utils.set_random_seed` does.

  After Keras' own function every layer that tf-keras 2.17 builds raises a
  TypeError on Python 3.12. The seeds drawn here are the same, on any Python.

  Args:
    seed: of Python, NumPy, TensorFlow and Keras; 0 to 2^32 - 1.
  """
  tf.keras.utils.set_random_seed(seed)  # noqa: TID251
  backend = sys.modules[tf.keras.backend.clear_session.__module__]
  backend._SEED_GENERATOR.generator = _Generator(seed)
