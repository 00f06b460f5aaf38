"""Losses of the baselines, by hand or against NumPy."""

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.classifiers import cosine
from ibdrr_tf.methods import (
  der_pp,
  gfr,
  icarl,
  lucir,
  lwf,
  mnemonics,
  mrdc,
  podnet,
  wa,
)
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import feature_gan


def normal(*shape, seed=0):
  return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def softmax(x):
  e = np.exp(x)
  return e / e.sum(axis=1, keepdims=True)


def unit(x):
  return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_icarl_asks_the_old_network_about_old_classes():
  logits, old = normal(3, 4), normal(3, 2, seed=1)
  labels = np.array([3, 0, 2])
  targets = np.eye(4)[labels]
  targets[:, :2] = sigmoid(old)  # the label 0 of an exemplar is not used
  p = sigmoid(logits)
  want = -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean()
  got = icarl.sigmoid_loss(tf.constant(labels), tf.constant(logits), old)
  np.testing.assert_allclose(got, want, rtol=1e-5)
  plain = np.eye(4)[labels]
  want = -(plain * np.log(p) + (1 - plain) * np.log(1 - p)).mean()
  got = icarl.sigmoid_loss(tf.constant(labels), tf.constant(logits), None)
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_less_forget_loss_is_one_minus_the_cosine():
  new = tf.constant([[3.0, 0.0], [1.0, 1.0], [-2.0, 0.0]])
  old = tf.constant([[5.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
  want = (0 + (1 - 0.5**0.5) + 2) / 3
  np.testing.assert_allclose(lucir.less_forget_loss(new, old), want, rtol=1e-5)


def test_ranking_loss_by_hand():
  cosines = tf.constant(
    [
      [0.9, 0.1, 0.5, 0.3, 0.2],  # old class 0: rivals .5 and .3
      [0.1, 0.2, 0.1, 0.0, 0.6],  # old class 1: rivals .6 and .1
      [0.0, 0.9, 0.8, 0.9, 0.9],  # a new class: does not count
    ]
  )
  labels = tf.constant([0, 1, 2])
  first = (max(0, 0.5 - 0.9 + 0.5) + max(0, 0.5 - 0.9 + 0.3)) / 2
  second = ((0.5 - 0.2 + 0.6) + (0.5 - 0.2 + 0.1)) / 2
  got = lucir.ranking_loss(labels, cosines, old=2, hardest=2, margin=0.5)
  np.testing.assert_allclose(got, (first + second) / 2, rtol=1e-5)


def test_ranking_loss_without_old_images_or_with_one_new_class():
  cosines = tf.constant([[0.9, 0.1, 0.5]])
  new = lucir.ranking_loss(tf.constant([2]), cosines, 2, 2, 0.5)
  assert float(new) == 0
  one = lucir.ranking_loss(tf.constant([1]), cosines, 2, 2, 0.5)
  np.testing.assert_allclose(one, 0.5 - 0.1 + 0.5, rtol=1e-5)


def test_ranking_loss_of_a_step_without_new_classes():
  cosines = tf.constant([[0.9, 0.1], [0.2, 0.3]])
  got = lucir.ranking_loss(tf.constant([0, 0]), cosines, 2, 2, 0.5)
  assert float(got) == 0


def test_adaptive_weight():
  assert lucir.adaptive_weight(5.0, 50, 2) == 25.0
  assert lucir.adaptive_weight(5.0, 4, 0) == 10.0


def test_lwf_lets_new_images_compete_among_new_classes():
  logits = normal(4, 5)
  labels = np.array([3, 4, 0, 1])  # Two of new classes, two of old ones.
  new, old = softmax(logits[:2, 3:]), softmax(logits[2:])
  want = -np.log([new[0, 0], new[1, 1], old[0, 0], old[1, 1]]).mean()
  got = lwf.new_class_loss(tf.constant(labels), tf.constant(logits), 3)
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_mnemonics_distillation_is_the_released_formula():
  """Mean over all elements, times T^2, beta and the number of old classes."""
  old, new = normal(2, 5, 4) * 3
  p, q = softmax(old / 2), softmax(new / 2)
  want = (p * np.log(p / q)).mean() * 2**2 * 0.25 * 4
  got = mnemonics.kl_distillation(tf.constant(old), tf.constant(new), 2.0, 0.25)
  np.testing.assert_allclose(got, want, rtol=1e-4)


def test_nearest_mean_loss_against_numpy():
  features, means = normal(4, 6), normal(3, 6, seed=1)
  labels = np.array([0, 2, 1, 1])
  shares = softmax(unit(features) @ unit(means).T)
  want = -np.log(shares[np.arange(4), labels]).mean()
  got = mnemonics.nearest_mean_loss(
    tf.constant(features), tf.constant(labels), tf.constant(means)
  )
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_learned_pixels_move_and_lower_the_loss():
  set_random_seed(0)
  classifier = classifiers.build_classifier(
    backbone="resnet8", width=4, image_shape=(8, 8, 3), classes=3
  )
  generator = np.random.default_rng(0)
  images = generator.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
  labels = np.arange(12) % 2 + 1  # new classes 1 and 2; 0 is old
  queries, query_labels = images, np.roll(labels, 1)  # not what they are yet
  old_means = unit(normal(1, 16))

  def loss(exemplars):
    features = classifier.embed(exemplars).numpy()
    means = [features[labels == k].mean(axis=0) for k in (1, 2)]
    return float(
      mnemonics.nearest_mean_loss(
        classifier.embed(queries),
        tf.constant(query_labels),
        tf.constant(np.concatenate([old_means, means])),
      )
    )

  def learn(rate):
    batches = tf.data.Dataset.from_tensors((queries, query_labels)).repeat(20)
    return mnemonics.learn_pixels(
      classifier, (images, labels), old_means, batches, rate=rate, momentum=0.9
    )

  moved = learn(rate=30.0)
  assert moved.dtype == np.uint8
  assert (moved != images).mean() > 0.1
  assert loss(moved) < loss(images) - 0.01
  np.testing.assert_array_equal(moved, learn(rate=30.0))
  # At a rate of nothing, bytes come back as they were.
  np.testing.assert_array_equal(learn(rate=1e-12), images)


def test_feature_distance_is_one_norm_and_has_a_slope_everywhere():
  new = tf.Variable([[3.0, 0.0], [0.0, 4.0]])
  old = tf.zeros([2, 2])
  np.testing.assert_allclose(gfr.feature_distance(new, old), 5.0, rtol=1e-6)
  with tf.GradientTape() as tape:
    distance = gfr.feature_distance(new, new + 0.0)
  assert np.isfinite(tape.gradient(distance, new)).all()


def test_old_factor_counts_steps_worth_of_old_classes():
  # Ten classes a step after fifty, as base // new + phase - 1 has it.
  assert [gfr.old_factor(50 + 10 * n, 10) for n in (0, 1, 4)] == [5, 6, 9]
  assert gfr.old_factor(50, 2) == 25
  assert gfr.old_factor(0, 7) == 0
  assert gfr.old_factor(6, 0) == 6  # Only more images of known classes.


def test_gradient_penalty_of_a_known_slope():
  """A critic w . x + v . label has the slope w everywhere."""
  inputs = [tf.keras.Input([2]), tf.keras.Input([3])]
  slope = tf.keras.layers.Dense(1, use_bias=False)
  critic = tf.keras.Model(inputs, slope(inputs[0])[:, 0])
  slope.set_weights([np.array([[3.0], [4.0]])])
  got = feature_gan.gradient_penalty(
    critic,
    tf.constant(normal(5, 2)),
    tf.constant(normal(5, 2, seed=1)),
    tf.zeros([5, 3]),
    tf.constant(normal(5, 1)),
  )
  np.testing.assert_allclose(got, (5 - 1) ** 2, rtol=1e-5)


def test_gradient_penalty_is_taken_between_real_and_fake():
  """The score |x|^2 / 2 has the slope |x|."""
  inputs = [tf.keras.Input([1]), tf.keras.Input([1])]
  critic = tf.keras.Model(
    inputs, tf.keras.layers.Dot(1)([inputs[0], inputs[0]])[:, 0] / 2
  )
  real, fake = tf.constant([[6.0]]), tf.constant([[2.0]])
  got = feature_gan.gradient_penalty(
    critic, real, fake, tf.ones([1, 1]), tf.constant([[0.25]])
  )
  np.testing.assert_allclose(got, (0.25 * 6 + 0.75 * 2 - 1) ** 2, rtol=1e-5)


def test_critic_projects_labels():
  critic = feature_gan.build_critic(4, 3, 8)
  x = normal(6, 4)
  labels = np.eye(3, dtype=np.float32)[[0, 1, 2, 0, 1, 2]]
  hidden = x
  dense = [layer for layer in critic.layers if "dense" in layer.name]
  square = [d for d in dense if d.bias is not None and d.units == 8]
  (projection,) = [d for d in dense if d.bias is None]
  (last,) = [d for d in dense if d.units == 1]
  for layer in square:
    hidden = hidden @ layer.kernel.numpy() + layer.bias.numpy()
    hidden = np.where(hidden > 0, hidden, 0.2 * hidden)
  want = (labels @ projection.kernel.numpy() * hidden).sum(axis=1)
  want += (hidden @ last.kernel.numpy() + last.bias.numpy())[:, 0]
  np.testing.assert_allclose(critic([x, labels]), want, atol=1e-5)


def labels_of(numbers, classes):
  return np.eye(classes, dtype=np.float32)[numbers]


def test_generator_and_critic_grow_without_a_change_for_old_classes():
  set_random_seed(0)
  noise, x, old = normal(6, 4), normal(6, 5, seed=1), [0, 1, 2, 0, 1, 2]
  generators = [feature_gan.build_generator(4, n, 8, 5) for n in (3, 5)]
  critics = [feature_gan.build_critic(5, n, 8) for n in (3, 5)]
  for small, large in (generators, critics):
    feature_gan.grow(small, large)
  for models, inputs in ((generators, noise), (critics, x)):
    before, after = (
      model([inputs, labels_of(old, n)]).numpy()
      for model, n in zip(models, (3, 5), strict=True)
    )
    np.testing.assert_allclose(after, before, atol=1e-6)
    # New classes have inputs of their own, which are not zero.
    one, other = (
      models[1]([inputs, labels_of([k] * 6, 5)]).numpy() for k in (3, 4)
    )
    assert np.abs(one - other).max() > 1e-5
  # Without a new class, nothing changes at all.
  same = feature_gan.build_generator(4, 3, 8, 5)
  feature_gan.grow(generators[0], same)
  for a, b in zip(generators[0].get_weights(), same.get_weights(), strict=True):
    np.testing.assert_array_equal(a, b)


def test_generator_and_critic_lose_one_class_and_keep_the_others():
  set_random_seed(0)
  # As many classes as noise, features and hidden units: no shape tells which.
  for label in range(4):
    noise = normal(6, 4)
    for build in (
      lambda n: feature_gan.build_generator(4, n, 4, 4),
      lambda n: feature_gan.build_critic(4, n, 4),
    ):
      large, small = build(4), build(3)
      small.set_weights(feature_gan.without_class(large, label))
      left = [k for k in range(4) if k != label]
      for new, old in enumerate(left):
        np.testing.assert_allclose(
          small([noise, labels_of([new] * 6, 3)]),
          large([noise, labels_of([old] * 6, 4)]),
          atol=1e-6,
        )


def test_generator_learns_conditional_features_and_keeps_old_ones():
  """Two classes of features, (3, 0) and (0, 3); then a third, (3, 3)."""

  def adam():
    return tf.keras.optimizers.Adam(2e-3, beta_1=0.5, jit_compile=False)

  def batches(points, labels, old, steps):
    def draw(step):
      seeds = tf.random.experimental.stateless_split(tf.stack([step, 7]), 5)
      count = 5 * 32
      chosen = tf.random.stateless_uniform(
        [count], seeds[0], 0, len(labels), tf.int32
      )
      real = tf.gather(tf.constant(points, tf.float32), chosen)
      return (
        real + 0.1 * tf.random.stateless_normal([count, 2], seeds[1]),
        tf.gather(tf.constant(labels), chosen),
        tf.random.stateless_normal([count, 4], seeds[2]),
        tf.random.stateless_uniform([count, 1], seeds[3]),
        tf.random.stateless_uniform([count], seeds[4], 0, old, tf.int32),
      )

    return tf.data.Dataset.range(steps).map(draw)

  def means(generator, count):
    noise = normal(100, 4, seed=5)
    return [
      generator([noise, labels_of([k] * 100, count)]).numpy().mean(axis=0)
      for k in range(count)
    ]

  set_random_seed(0)
  generator = feature_gan.build_generator(4, 2, 32, 2)
  critic = feature_gan.build_critic(2, 2, 32)
  gan = feature_gan.FeatureGAN(
    generator, critic, adam(), critic_steps=5, penalty=10.0
  )
  gan.compile(adam())
  gan.fit(batches([[3, 0], [0, 3]], [0, 1], 1, 400), verbose=0)
  first = means(generator, 2)
  np.testing.assert_allclose(first, [[3, 0], [0, 3]], atol=0.8)

  old, old_critic = generator, critic
  generator = feature_gan.build_generator(4, 3, 32, 2)
  critic = feature_gan.build_critic(2, 3, 32)
  feature_gan.grow(old, generator)
  feature_gan.grow(old_critic, critic)
  gan = feature_gan.FeatureGAN(
    generator,
    critic,
    adam(),
    critic_steps=5,
    penalty=10.0,
    old_generator=old,
    distillation=1.0,
  )
  gan.compile(adam())
  gan.fit(batches([[3, 3]], [2], 2, 200), verbose=0)
  now = means(generator, 3)
  np.testing.assert_allclose(now[:2], first, atol=0.5)
  np.testing.assert_allclose(now[2], [3, 3], atol=1.0)


def test_new_weights_are_scaled_to_the_norm_of_old_ones():
  kernel = np.array([[3.0, 0.0, 0.0, 10.0], [4.0, 1.0, 2.0, 0.0]])
  # Old norms 5 and 1, new ones 2 and 10: 3 / 6 of the new weights.
  want = np.array([[3.0, 0.0, 0.0, 5.0], [4.0, 1.0, 1.0, 0.0]])
  np.testing.assert_allclose(wa.aligned(kernel, 2), want)
  for old in (0, 4):  # The first step; a step without new classes.
    assert wa.aligned(kernel, old) is kernel


def test_logits_are_compared_where_they_were_known():
  logits = np.array([[1.0, 2.0, 9.0], [0.0, 1.0, 2.0]], np.float32)
  kept = np.array([[3.0, 2.0, 0.0], [1.0, 1.0, 5.0]], np.float32)
  known = np.array([[True, True, False], [True, True, True]])
  want = ((4 + 0) / 2 + (1 + 0 + 9) / 3) / 2
  got = der_pp.logit_distance(logits, kept, known)
  np.testing.assert_allclose(got, want, rtol=1e-6)


def test_pooled_distance_against_numpy():
  new = [normal(2, 4, 3, 5), normal(2, 2, 2, 6, seed=1)]
  old = [normal(2, 4, 3, 5, seed=2), normal(2, 2, 2, 6, seed=3)]

  def pooled(x):
    sums = [(x**2).sum(axis=axis).reshape(len(x), -1) for axis in (1, 2)]
    return unit(np.concatenate(sums, axis=1))

  want = np.mean(
    [
      np.linalg.norm(pooled(a) - pooled(b), axis=1).mean()
      for a, b in zip(new, old, strict=True)
    ]
  )
  np.testing.assert_allclose(podnet.pooled_distance(new, old), want, rtol=1e-5)
  # Equal outputs have a slope, which is nothing.
  outputs = tf.constant(new[0])
  with tf.GradientTape() as tape:
    tape.watch(outputs)
    distance = podnet.pooled_distance([outputs], [new[0]])
  assert np.isfinite(tape.gradient(distance, outputs)).all()


def test_nca_by_hand():
  logits = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, 1.0]], np.float32)
  labels = np.array([0, 2])
  # The first leads by its margin; the second is behind.
  first = -(1.4 - 1.4) + np.log(1 + np.exp(1 - 1.4) + np.exp(0 - 1.4))
  second = -(0.4 - 3) + np.log(1 + np.exp(0.5 - 3) + np.exp(3 - 3))
  got = podnet.nca_loss(tf.constant(labels), tf.constant(logits), 0.6)
  np.testing.assert_allclose(got, (first + second) / 2, rtol=1e-5)


def test_proxies_are_averaged_by_their_own_softmax():
  features = tf.keras.Input([4])
  head = tf.keras.Model(features, cosine.cosine_head(features, 3, 1, 2))
  weights = normal(4, 6, seed=1)
  layer = head.get_layer("cosines")
  layer.fixed_kernel.assign(weights[:, :2])
  layer.kernel.assign(weights[:, 2:])
  head.get_layer("logits").scale.assign(5.0)
  x = normal(7, 4)
  cosines = (unit(x) @ unit(weights.T).T).reshape(7, 3, 2)
  shares = np.exp(cosines) / np.exp(cosines).sum(axis=2, keepdims=True)
  want = 5 * (shares * cosines).sum(axis=2)
  np.testing.assert_allclose(head(x), want, rtol=1e-4, atol=1e-5)


def test_log_volume_by_hand():
  """Of two unit vectors at an angle: the area |sin|."""
  for angle in (0.3, 1.2):
    features = np.array([[2.0, 0.0], [3 * np.cos(angle), 3 * np.sin(angle)]])
    got = mrdc.log_volume(features)
    np.testing.assert_allclose(got, np.log(np.sin(angle)), atol=2e-3)
  # More vectors than dimensions span nothing, but have a number.
  assert np.isfinite(mrdc.log_volume(normal(5, 3)))


def test_the_lowest_quality_that_keeps_the_volume_is_taken():
  volumes = {50: (-11.0, -10.0), 10: (-18.0, -10.0), 25: (-14.0, -10.0)}
  assert mrdc.finest_that_keeps(volumes, 0.5) == 25
  assert mrdc.finest_that_keeps(volumes, 0.3) == 50
  assert mrdc.finest_that_keeps(volumes, 0.01) == 50
  # A single image spans what it spans.
  assert mrdc.finest_that_keeps({10: (0.0, 0.0)}, 0.5) == 10
