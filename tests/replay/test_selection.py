import itertools

import numpy as np

from ibdrr_tf.replay import selection


def test_herding_equals_its_definition_by_brute_force():
  """Each pick brings the mean of the picked closest to the class mean.

  iCaRL's paper states it so; for unit features it is the same as the rule by
  dot products, which is what is implemented.
  """
  generator = np.random.default_rng(0)
  for _ in range(20):
    features = generator.normal(size=(12, 5)) + 1
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    mean = unit.mean(axis=0)
    want = []
    for k in range(1, 7):
      best = min(
        (i for i in range(12) if i not in want),
        key=lambda i: np.linalg.norm(
          mean - (unit[i] + unit[want].sum(axis=0)) / k
        ),
      )
      want.append(best)
    assert selection.herd(features, 6).tolist() == want


def test_herding_ignores_the_norm_and_never_repeats():
  features = np.random.default_rng(1).normal(size=(9, 4)) + 0.5
  scaled = features * np.arange(1, 10)[:, None]
  picked = selection.herd(features, 100)
  assert sorted(picked) == list(range(9))
  assert picked.tolist() == selection.herd(scaled, 100).tolist()


def test_random_order_depends_on_the_seed_alone():
  orders = [
    tuple(selection.random_order(500, (seed, label)))
    for seed, label in itertools.product(range(3), range(3))
  ]
  assert len(set(orders)) == 9
  assert orders[0] == tuple(selection.random_order(500, (0, 0)))
  assert all(sorted(order) == list(range(500)) for order in orders)


def test_class_means_by_hand():
  features = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 5.0]])
  flipped = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 9.0]])
  got = selection.class_means(features, flipped, np.array([0, 2, 2]))
  # Class 0: (1, 0) and (0, 1). Class 2: (0, 1) and (.5, .5). None of class 1.
  want = np.array([[0.5, 0.5], [np.nan, np.nan], [0.25, 0.75]])
  want /= np.linalg.norm(want, axis=1, keepdims=True)
  np.testing.assert_allclose(got, want)
