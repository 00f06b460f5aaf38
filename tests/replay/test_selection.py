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


def test_random_choice_depends_on_the_seed_alone():
  choices = [
    tuple(selection.pick_random(500, 20, (seed, label)))
    for seed, label in itertools.product(range(3), range(3))
  ]
  assert len(set(choices)) == 9
  assert choices[0] == tuple(selection.pick_random(500, 20, (0, 0)))
  assert all(len(set(c)) == 20 and max(c) < 500 for c in choices)
  assert selection.pick_random(3, 20, (0,)).tolist() == [0, 1, 2]
