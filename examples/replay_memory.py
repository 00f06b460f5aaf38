"""A replay memory in one's own Keras loop.

    python examples/replay_memory.py

Two classes come first, two more later. The old images are gone by then, but not
from memory. Takes about half a minute on two CPU cores.
"""

import tempfile

import numpy as np
import tensorflow as tf

import ibdrr_tf
from ibdrr_tf.random_seed import set_random_seed


def drawings(label: int, count: int) -> np.ndarray:
  """Images of one class: stripes of their own direction and width."""
  generator = np.random.default_rng(label)
  y, x = np.mgrid[:32, :32]
  angle = label * np.pi / 4 + generator.normal(0, 0.1, (count, 1, 1))
  phase = generator.uniform(0, 2 * np.pi, (count, 1, 1))
  wave = np.sin((np.cos(angle) * x + np.sin(angle) * y) * 0.8 + phase)
  colour = generator.uniform(0.3, 1.0, (count, 1, 1, 3))
  return (127.5 * (1 + wave[..., None] * colour)).astype(np.uint8)


def build_model() -> tf.keras.Model:
  """Any Keras model of uint8 images."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.Rescaling(1 / 128, offset=-1, input_shape=(32, 32, 3)),
      tf.keras.layers.Conv2D(16, 5, 2, activation="relu"),
      tf.keras.layers.Conv2D(32, 3, 2, activation="relu"),
      tf.keras.layers.GlobalAveragePooling2D(),
      tf.keras.layers.Dense(4),
    ]
  )


set_random_seed(0)
with tempfile.TemporaryDirectory() as folder:
  memory = ibdrr_tf.ReplayMemory(f"{folder}/memory", "cifar100")
  for arriving in ((0, 1), (2, 3)):
    for label in arriving:
      memory.add(drawings(label, 100), [label] * 100)
    model = build_model()
    model.compile(
      tf.keras.optimizers.Adam(3e-3),
      tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=["accuracy"],
    )
    model.fit(memory.dataset(batch_size=32, augment=True), epochs=20, verbose=0)
  test = np.concatenate([drawings(label, 150)[100:] for label in range(4)])
  named = model.predict(test, verbose=0).argmax(axis=1)
  right = np.mean(named == np.repeat(np.arange(4), 50))
  ledger = memory.ledger()
  print(f"{len(memory)} images in {ledger.payload:,} bytes of bit-strings")
  print(f"accuracy on all four classes: {100 * right:.0f} %")
