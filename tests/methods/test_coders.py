"""DGR, Scalable Recollections, AQM and EEC: losses, codes and what is kept."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_step import assert_ledger_matches, make_tasks, pixels

from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import aqm, dgr
from ibdrr_tf.methods import scalable_recollections as recollections
from ibdrr_tf.replay import coded_memory, episode_memory


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def softmax(x):
  e = np.exp(x)
  return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("bits", [1, 4, 7])
def test_codes_come_back_from_their_bits(bits):
  codes = np.random.default_rng(0).integers(0, 1 << bits, (5, 9))
  strings = coded_memory.pack_codes(codes, bits)
  assert {len(s) for s in strings} == {-(-9 * bits // 8)}
  back = coded_memory.unpack_codes(strings, bits, 9)
  np.testing.assert_array_equal(back, codes)


def test_divergences_from_the_prior():
  mean, log_variance = normal(4, 3), normal(4, 3, seed=1)
  variance = np.exp(log_variance)
  want = 0.5 * (variance + mean**2 - 1 - np.log(variance)).sum(axis=1)
  got = dgr.divergence(tf.constant(mean), tf.constant(log_variance))
  np.testing.assert_allclose(got, want, rtol=1e-5)
  logits = normal(4, 2, 2, 3, 5)
  p = softmax(logits)
  want = (p * np.log(p * 5)).sum(axis=(1, 2, 3, 4))
  got = recollections.divergence(tf.constant(logits))
  np.testing.assert_allclose(got, want, rtol=1e-4)


def test_gumbel_softmax_draws_by_the_shares_and_has_a_gradient():
  logits = np.tile(normal(1, 4), [4000, 1])
  x = tf.Variable(logits)
  with tf.GradientTape() as tape:
    drawn = recollections.gumbel_softmax(x, tf.constant([1, 2]), 0.7)
    score = tf.reduce_sum(drawn * tf.constant([1.0, 2.0, 3.0, 4.0]))
  np.testing.assert_allclose(np.sort(drawn.numpy(), axis=1)[:, -1], 1.0, 1e-6)
  np.testing.assert_allclose(
    drawn.numpy().mean(axis=0), softmax(logits[0]), atol=0.03
  )
  slope = tape.gradient(score, x).numpy()
  assert np.abs(slope).max() > 0.01
  np.testing.assert_allclose(slope.sum(axis=1), 0, atol=1e-4)


def test_the_coarsest_level_that_is_good_enough():
  errors = np.array([[1, 2, 3], [1, 9, 3], [1, 2, 9], [9, 9, 9], [9, 2, 9]])
  assert aqm.coarsest(errors, 3).tolist() == [3, 3, 2, 0, 2]


def test_new_share_counts_classes():
  assert dgr.new_share(0, 10) == 1.0
  assert dgr.new_share(10, 12) == pytest.approx(1 / 6)
  assert dgr.new_share(3, 3) == pytest.approx(1 / 4)


def test_dgr_weighs_new_and_generated_images(taken, reopen):
  run, steps = taken("dgr"), reopen("dgr", 1)
  task = run.tasks[2]
  new = steps.new_classifier(task)
  objective, _ = steps.method.objective(steps.step(task), new)
  images, labels = pixels(task.new), task.new.labels
  noise = normal(len(labels), steps.config.dgr.latent)
  parts, logits = objective(images, tf.constant(labels), noise)
  generator = steps.memory.generator()
  replayed = generator.generate(noise).numpy()
  assert replayed.dtype == np.uint8 and replayed.std() > 0
  old_labels = steps.network.classifier(replayed).numpy().argmax(axis=1)
  both = new(np.concatenate([images, replayed]), training=True).numpy()
  p = softmax(both.astype(np.float64))
  each = -np.log(p[np.arange(len(p)), np.concatenate([labels, old_labels])])
  size = len(labels)
  want = {  # One new class of three.
    "cross_entropy": each[:size].mean() / 3,
    "replayed": 2 * each[size:].mean() / 3,
  }
  got = {name: float(value) for name, value in parts.items()}
  assert got == pytest.approx(want, rel=1e-3)
  assert logits.shape == (size, 3)


@pytest.mark.parametrize("name", ["aqm", "scalable_recollections"])
def test_a_coder_gives_back_what_it_learned(make, tmp_path, name):
  """After enough steps on few images, and far better than before."""
  steps = make(name, tmp_path, coder_epochs=150, coder_rate=0.01, widths=(8, 8))
  steps.config[name].coder_batch_size = 8
  (task,) = make_tasks({0: 8, 1: 8})
  steps.keep(task)
  back, labels = steps.memory.replayed()
  assert labels.tolist() == [0] * 8 + [1] * 8
  images = pixels(task.new)
  for image, label in zip(back.astype(float), labels, strict=True):
    errors = ((images - image) ** 2).mean(axis=(1, 2, 3))
    nearest = int(errors.argmin())
    assert task.new.labels[nearest] == label
    assert errors[nearest] < np.median(errors) / 2


def test_aqm_keeps_hard_images_without_loss_and_freezes_good_codebooks(
  make, tmp_path
):
  tasks = make_tasks({0: 6, 1: 6}, {2: 6})
  steps = make("aqm", tmp_path / "strict", error=1e-9)
  steps.keep(tasks[0])
  assert steps.memory.levels().tolist() == [0] * 12
  back, _ = steps.memory.replayed()
  assert {i.tobytes() for i in back} == {
    i.tobytes() for i in pixels(tasks[0].new)
  }
  assert steps.memory._part["frozen"] == [False, False]
  # Once more is allowed, what was kept without loss is compressed.
  steps.config.aqm.error = 9.0
  raw = steps.memory.stored_bytes()["payload"]
  steps.keep(tasks[1])
  assert steps.memory.levels().tolist() == [2] * 18
  assert steps.memory.stored_bytes()["payload"] < raw / 5
  assert steps.memory._part["frozen"] == [True, True]
  assert_ledger_matches(steps)
  books = [q.codebooks[0].numpy() for q in steps.memory.coder().quantizers]
  (task,) = make_tasks({0: 6})
  steps.keep(type(task)(2, task.new, None, 3, 3))
  for quantizer, book in zip(
    steps.memory.coder().quantizers, books, strict=True
  ):
    np.testing.assert_array_equal(quantizer.codebooks[0], book)


def test_codes_hold_a_byte_budget(make, tmp_path):
  """All classes keep alike many; what is too little says what would do."""
  tasks = make_tasks({0: 8, 1: 8}, {2: 8}, {0: 4})
  options = {"error": 9.0}
  free = make("aqm", tmp_path / "free", **options)
  free.keep(tasks[0])
  # A manifest of a thousand bytes, and about half of all codes.
  budget = free.memory.stored_bytes()["other_models"] + 1000 + 520
  steps = make("aqm", tmp_path / "w", memory={"total_bytes": budget}, **options)
  dropped = 0
  for task in tasks:
    steps.memory.examples(task)
    steps.keep(task)
    assert assert_ledger_matches(steps).total <= budget
    dropped += steps.memory.dropped
  counts = np.bincount(steps.memory.exemplars.labels())
  assert dropped > 0 and counts.max() - counts.min() <= 1
  small = make("aqm", tmp_path / "w", 2, {"total_bytes": 77}, **options)
  with pytest.raises(UserError, match=r"77 bytes is too small: \d+ would do"):
    small.memory.examples(tasks[1])


def test_decay_follows_the_lost_accuracy():
  assert episode_memory.decay(0.8, 0.8) == 1.0
  assert episode_memory.decay(0.8, 0.4) == pytest.approx(np.exp(-0.5))
  assert episode_memory.decay(0.5, 0.9) == 1.0


def test_merged_clusters_have_the_moments_of_their_codes():
  codes = np.concatenate([normal(6, 3), 50 + normal(4, 3, seed=1)])
  zeros, ones = np.zeros_like(codes), np.ones(10, np.int32)
  means, deviations, counts = episode_memory.merge(codes, zeros, ones, 2)
  order = np.argsort(counts)
  assert counts[order].tolist() == [4, 6]
  for k, mine in zip(order, (codes[6:], codes[:6]), strict=True):
    np.testing.assert_allclose(means[k], mine.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(deviations[k], mine.std(axis=0), rtol=1e-3)
  # Clusters merge into one that has the moments of all codes.
  mean, deviation, count = episode_memory.merge(means, deviations, counts, 1)
  assert count.tolist() == [10]
  np.testing.assert_allclose(mean[0], codes.mean(axis=0), rtol=1e-4)
  np.testing.assert_allclose(deviation[0], codes.std(axis=0), rtol=1e-3)


def test_eec_merges_codes_when_bytes_are_scarce(taken, make, tmp_path):
  """The budget holds after each step, and every image is stood for."""
  network = taken("eec").steps.network
  tasks = make_tasks({0: 8, 1: 8}, {2: 8}, {0: 4})
  free = make("eec", tmp_path / "free")
  free.keep(tasks[0], network)
  (decoder,) = free.memory._part["files"].values()
  code = len(free.memory.store.read().images[0])
  budget = 3 * decoder + 2000 + 16 * code
  steps = make("eec", tmp_path / "w", memory={"total_bytes": budget})
  counts = []
  for task in tasks:
    steps.memory.examples(task)
    steps.keep(task, network)
    assert assert_ledger_matches(steps).total <= budget
    images, labels = steps.memory.replayed()
    assert len(images) == len(labels) == steps.memory.stored_bytes()["images"]
    counts.append(np.bincount(labels).tolist())
    again, _ = steps.memory.replayed()
    np.testing.assert_array_equal(images, again)
  assert counts == [[8, 8], [8, 8, 8], [12, 8, 8]]
  kept = steps.memory.store.read()
  assert kept.counts.max() > 1 and len(kept) < 28
  steps.forget(3, 1)
  assert np.bincount(steps.memory.replayed()[1]).tolist() == [12, 8]
  assert len(steps.memory._part["weights"]) == 2
  with pytest.raises(UserError, match=r"is too small: \d+ would do"):
    small = make("eec", tmp_path / "w", 3, memory={"total_bytes": 77})
    small.memory.examples(tasks[1])
