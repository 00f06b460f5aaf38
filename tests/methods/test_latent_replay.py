"""Latent replay and REMIND: what is frozen, kept and learned from."""

import numpy as np
import tensorflow as tf
from tiny_step import pixels

from ibdrr_tf.methods import latent_replay


def softmax(x):
  e = np.exp(x)
  return e / e.sum(axis=1, keepdims=True)


def test_what_is_below_the_stage_stays_as_it_was(taken, reopen):
  first = reopen("remind", 0).network.classifier
  last = taken("remind").steps.network.classifier
  lower = [c.up_to("stage_1").get_weights() for c in (first, last)]
  assert all((a == b).all() for a, b in zip(*lower, strict=True))
  upper = [c.get_layer("logits").get_weights()[0][:, :2] for c in (first, last)]
  assert (upper[0] != upper[1]).any()


def test_kept_latents_are_those_of_every_later_network(taken):
  run = taken("latent_replay")
  latents, labels = run.steps.memory.read()
  assert latents.dtype == np.float16
  assert np.bincount(labels).tolist() == [3, 3, 3]
  seen = np.concatenate(
    [run.steps.network.outputs("stage_1", task.new) for task in run.tasks]
  )
  for latent in latents.astype(np.float32):
    distances = np.abs(seen - latent).max(axis=(1, 2, 3))
    assert distances.min() < 2e-3 * max(1, np.abs(latent).max())


def test_quantised_latents_are_bytes(taken):
  run = taken("remind")
  latents, labels = run.steps.memory.read()
  (shape,) = {latent.shape for latent in latents}
  ledger = run.ledgers[2]
  # A byte for every two channels.
  assert ledger.payload == len(labels) * np.prod(shape) // 2
  assert ledger.other_models > 256 * shape[-1] * 2


def test_latents_enter_in_the_middle_and_are_mixed(taken, reopen):
  run, steps = taken("remind"), reopen("remind", 1)
  task = run.tasks[2]
  new = steps.new_classifier(task)
  objective, names = steps.method.objective(steps.step(task), new)
  latents, latent_labels = (x[:5] for x in steps.memory.read())
  images, labels = pixels(task.new), task.new.labels
  shares = np.linspace(0, 1, 5).astype(np.float32)
  drawn = (latents, latent_labels, latents[::-1], latent_labels[::-1], shares)
  parts, logits = objective(images, tf.constant(labels), *drawn)
  assert set(parts) == set(names) and logits.shape == (len(labels), 3)
  weights = shares[:, None, None, None]
  floats = latents.astype(np.float32)
  mixed = weights * floats + (1 - weights) * floats[::-1]
  entered = np.concatenate([new.up_to("stage_1")(images), mixed])
  upper = tf.keras.Model(
    new.get_layer("stage_1").output, new.get_layer("logits").output
  )
  p = softmax(upper(entered, training=True).numpy())
  want = -np.log(p[np.arange(len(labels)), labels]).mean()
  np.testing.assert_allclose(parts["cross_entropy"], want, rtol=1e-3)
  hot = np.eye(3)[latent_labels]
  hot = shares[:, None] * hot + (1 - shares[:, None]) * hot[::-1]
  want = -(hot * np.log(p[len(labels) :])).sum(axis=1).mean()
  np.testing.assert_allclose(parts["replayed"], want, rtol=1e-3)


def test_mixup_by_hand():
  got = latent_replay.mixed(
    tf.constant([[4.0, 0.0], [1.0, 1.0]]),
    tf.constant([[0.0, 8.0], [3.0, 5.0]]),
    tf.constant([0.25, 1.0]),
  )
  np.testing.assert_allclose(got, [[1.0, 6.0], [1.0, 1.0]])
