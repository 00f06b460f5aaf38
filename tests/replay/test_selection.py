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


def test_true_shares_are_softmax_outputs():
  logits = np.array([[0.0, np.log(3.0)], [800.0, 0.0], [0.0, 800.0]])
  got = selection.true_shares(logits, np.array([1, 0, 0]))
  np.testing.assert_allclose(got, [0.75, 1.0, 0.0], atol=1e-12)
  assert len(selection.true_shares(np.zeros([0, 2]), np.zeros(0, int))) == 0


def test_coverage_ranks_the_crowded_last():
  """Three images at one place, two at another, one alone."""
  angles = np.array([0.0, 0.001, 0.002, 1.0, 1.001, 2.0])
  features = np.stack([np.cos(angles), np.sin(angles)], axis=1)
  order = selection.sparsest(features)
  assert sorted(order) == list(range(6))
  # One of each place comes before any second one; the third is the very last.
  assert {int(angles[k]) for k in order[:3]} == {0, 1, 2}
  assert {int(angles[k]) for k in order[3:5]} == {0, 1}
  assert int(angles[order[5]]) == 0
  # The longer vector points to the same place.
  assert order.tolist() == selection.sparsest(features * 7).tolist()
  assert selection.sparsest(features[:1]).tolist() == [0]
