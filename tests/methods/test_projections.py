"""GEM, A-GEM, EWC and SI: projections, penalties and importances."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from tiny_step import make_examples, make_tasks, pixels

from ibdrr_tf.classifiers import gradients
from ibdrr_tf.data import stream
from ibdrr_tf.methods import a_gem, ewc, gem, si
from ibdrr_tf.replay import importance_memory


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def best_of_all(g, references, margin):
  """g + R' v of the least length, v >= margin, by trying all active sets."""
  best = None
  for free in itertools.product([False, True], repeat=len(references)):
    free = np.array(free)
    values = np.full(len(references), margin)
    rest = g + references[~free].T @ values[~free]
    if free.any():
      values[free] = np.linalg.lstsq(references[free].T, -rest, rcond=None)[0]
    point = g + references.T @ values
    if (values >= margin - 1e-9).all() and (
      best is None or point @ point < best @ best
    ):
      best = point
  return best


def test_a_gem_gives_the_nearest_gradient_that_does_not_disagree():
  disagreed = 0
  for seed in range(8):
    g, r = normal(2, 5, seed=seed)
    got = a_gem.project(tf.constant(g), tf.constant(r)).numpy()
    want = best_of_all(g, r[np.newaxis], 0.0) if g @ r < 0 else g
    np.testing.assert_allclose(got, want, atol=1e-5)
    disagreed += g @ r < 0
  assert 1 < disagreed < 7
  # A memory without a slope sets no limit.
  zero = tf.zeros([5])
  np.testing.assert_array_equal(a_gem.project(tf.constant(g), zero), g)


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_gem_solves_its_quadratic_programme(margin):
  solved = 0
  for seed, count in itertools.product(range(4), (1, 3, 5)):
    g, references = normal(40, seed=seed), normal(count, 40, seed=seed + 99)
    references += 0.5 * normal(40, seed=7)  # Gradients of steps are alike.
    got = gem.project(tf.constant(g), tf.constant(references), margin).numpy()
    if (references @ g >= 0).all():
      np.testing.assert_array_equal(got, g)
      continue
    solved += 1
    want = best_of_all(g.astype(float), references.astype(float), margin)
    np.testing.assert_allclose(got, want, atol=0.01)
    if not margin:
      assert (references @ got).min() > -0.02
  assert solved > 6


def test_gem_with_a_step_of_which_nothing_was_drawn():
  g, r = normal(2, 5, seed=1)
  r *= -np.sign(g @ r)
  both = tf.constant(np.stack([np.zeros(5, np.float32), r]))
  want = a_gem.project(tf.constant(g), tf.constant(r))
  np.testing.assert_allclose(
    gem.project(tf.constant(g), both, 0.0), want, atol=1e-3
  )


def test_fisher_information_of_a_linear_network():
  """Expected over labels it is known; drawn labels come close."""
  model = tf.keras.Sequential(
    [tf.keras.Input([16, 16, 3]), tf.keras.layers.Flatten()]
  )
  model.add(tf.keras.layers.Dense(3))
  images = make_examples({0: 2, 1: 2}, (5,))
  x = pixels(images).reshape(4, -1).astype(np.float64)
  kernel = 1e-5 * normal(16 * 16 * 3, 3)
  model.set_weights([kernel, normal(3)])
  logits = x @ kernel + normal(3)
  p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
  # The gradient of log p_k by logit j is (j == k) - p_j.
  squares = (np.eye(3)[None] - p[:, None]) ** 2  # [image, k, j]
  by_logit = (p[:, :, None] * squares).sum(axis=1)
  want = (x[:, :, None] ** 2 * by_logit[:, None]).mean(axis=0)
  drawn = np.mean(
    [ewc.fisher(model, images, stream.fold_in(s)) for s in range(60)], axis=0
  )
  np.testing.assert_allclose(drawn[-3:], by_logit.mean(axis=0), rtol=0.25)
  np.testing.assert_allclose(drawn[:-3].sum(), want.sum(), rtol=0.15)


def test_importance_grows_with_classes_and_loses_them():
  body, kernel, bias = np.arange(4.0), np.arange(6.0).reshape(2, 3), [7, 8, 9]
  flat = np.concatenate([body, kernel.ravel(), bias])
  grown = importance_memory.grown(flat, 2, 3, 4)
  np.testing.assert_array_equal(
    grown, [0, 1, 2, 3, *[0, 1, 2, 0], *[3, 4, 5, 0], *[7, 8, 9, 0]]
  )
  np.testing.assert_array_equal(
    importance_memory.without_class(grown, 2, 4, 1),
    [0, 1, 2, 3, *[0, 2, 0], *[3, 5, 0], *[7, 9, 0]],
  )


def test_ewc_averages_by_classes_and_pulls_to_old_weights(taken, reopen):
  run, steps = taken("ewc"), reopen("ewc", 1)
  task = run.tasks[2]
  new = steps.new_classifier(task)
  importance = steps.memory.importance(new)
  bias = new.trainable_variables[-1]
  assert (importance[-3:][2] == 0) and importance[-3:][:2].any()
  assert importance.max() <= 1.0001e-4
  objective, _ = steps.method.objective(steps.step(task), new)
  old = gradients.flat(new.trainable_variables).numpy()
  new.trainable_variables[0].assign_add(
    0.3 * tf.ones_like(new.trainable_variables[0])
  )
  bias.assign_add([0.0, 1.0, 5.0])
  moved = gradients.flat(new.trainable_variables).numpy() - old
  parts, _ = objective(
    tf.constant(pixels(task.new)), tf.constant(task.new.labels)
  )
  want = 1000 / 2 * (importance * moved**2).sum()
  np.testing.assert_allclose(parts["penalty"], want, rtol=1e-4)
  # Two of three classes are old; the third had no importance before.
  after = run.steps.memory.importance(run.steps.network.classifier)
  assert len(after) == len(importance) and after[-1] > 0
  fresh = (after - 2 / 3 * importance) * 3
  known = steps.memory.known(new)
  assert fresh[known].min() > -1e-9 and fresh[known].max() < 1.001e-4


def test_path_importance_by_hand():
  got = si.path_importance(
    np.array([0.4, -1.0, 2.0]), np.array([0.5, 3.0, 0.0]), 0.1
  )
  np.testing.assert_allclose(got, [0.4 / 0.35, 0.0, 20.0])


def test_si_follows_the_loss_of_new_images_only(taken, reopen):
  """Its path is what a step of training has done, penalty left out."""
  steps = reopen("si", 1)
  task = make_tasks({0: 4, 1: 4}, {0: 1}, {1: 3, 2: 5})[2]
  new = steps.new_classifier(task)
  new.compile(tf.keras.optimizers.SGD(0.01))
  new.set_objective(*steps.method.objective(steps.step(task), new))
  images, labels = pixels(task.new), task.new.labels
  # Away from the anchor, so that there is a penalty.
  for weight in new.trainable_variables:
    weight.assign_add(0.01 * tf.random.stateless_normal(weight.shape, [1, 2]))
  before = gradients.flat(new.trainable_variables).numpy()
  with tf.GradientTape() as tape:
    logits = new(images, training=True)
    hidden = np.where(
      (labels[:, None] >= 2) & (np.arange(3) < 2)[None], -1e9, 0
    ).astype(np.float32)
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits + hidden)
    )
  slope = gradients.flat(tape.gradient(loss, new.trainable_variables)).numpy()
  logs = new.train_step((tf.constant(images), tf.constant(labels)))
  change = gradients.flat(new.trainable_variables).numpy() - before
  assert float(logs["penalty"]) > 0
  np.testing.assert_allclose(
    new.trace.path, -slope * change, rtol=1e-3, atol=1e-9
  )
  # It moved along the gradient of the sum of both.
  springs = steps.memory.importance(new) * (before - new.trace.start.numpy())
  np.testing.assert_allclose(
    change, -0.01 * (slope + 2 * 0.5 * springs), rtol=1e-2, atol=1e-6
  )


def test_gem_knows_the_step_of_each_class(taken, reopen):
  steps = reopen("gem", 2)
  assert steps.memory.groups().tolist() == [0, 0, 1]
  steps.forget(3, 2)
  assert steps.memory.groups().tolist() == [0, 0]
  assert reopen("gem", 1).memory.groups().tolist() == [0, 0]


def test_gem_has_a_limit_for_each_earlier_step(taken, reopen):
  run, steps = taken("gem"), reopen("gem", 2)
  new = steps.new_classifier(run.tasks[2])
  objective, names = steps.method.objective(steps.step(run.tasks[2]), new)
  assert names == ("cross_entropy", "group_0", "group_1")
  images, labels = steps.memory.exemplars.read()
  task = run.tasks[2]
  parts, _ = objective(
    pixels(task.new), tf.constant(task.new.labels), images, tf.constant(labels)
  )
  logits = new(images, training=True).numpy().astype(np.float64)
  p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
  each = -np.log(p[np.arange(len(labels)), labels])
  np.testing.assert_allclose(parts["group_0"], each[labels < 2].mean(), 1e-4)
  np.testing.assert_allclose(parts["group_1"], each[labels == 2].mean(), 1e-4)
