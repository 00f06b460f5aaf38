import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.classifiers import optimizer as optimizers


def paper(epochs, steps=10, **options):
  settings = {"learning_rate": 0.1, "momentum": 0.9, "l2": 5e-4} | options
  return optimizers.paper_sgd(epochs=epochs, steps_per_epoch=steps, **settings)


def rate(optimizer, step):
  return float(optimizer._learning_rate(tf.constant(step)))


def test_schedule_of_the_paper():
  sgd = paper(200)
  # Warm-up over 5 epochs of 10 steps; then 60, 120, 160.
  assert rate(sgd, 0) == pytest.approx(0.1 / 50)
  assert rate(sgd, 49) == pytest.approx(0.1)
  assert rate(sgd, 599) == pytest.approx(0.1)
  assert rate(sgd, 600) == pytest.approx(0.02)
  assert rate(sgd, 1199) == pytest.approx(0.02)
  assert rate(sgd, 1200) == pytest.approx(0.004)
  assert rate(sgd, 1600) == pytest.approx(0.0008)
  assert rate(sgd, 1999) == pytest.approx(0.0008)


def test_short_runs_keep_the_proportions():
  sgd = paper(20)
  assert rate(sgd, 9) == pytest.approx(0.05)
  assert rate(sgd, 19) == pytest.approx(0.1)
  assert rate(sgd, 59) == pytest.approx(0.1)
  assert rate(sgd, 60) == pytest.approx(0.02)
  assert rate(sgd, 160) == pytest.approx(0.0008)
  assert rate(paper(2, warmup_share=0.0), 0) == pytest.approx(0.1)


def test_steps_equal_pytorch_sgd_computed_by_hand():
  """Three steps of v = .9 v + g + l2 w; w -= lr v."""
  w, v, l2, lr = np.array([1.0, -2.0]), np.zeros(2), 0.1, 0.5
  gradient = np.array([0.3, 0.4])
  variable = tf.Variable(w, dtype=tf.float32)
  sgd = optimizers.L2SGD(lr, momentum=0.9, l2=l2, jit_compile=False)
  for _ in range(3):
    v = 0.9 * v + gradient + l2 * w
    w = w - lr * v
    sgd.apply_gradients([(tf.constant(gradient, tf.float32), variable)])
  np.testing.assert_allclose(variable.numpy(), w, rtol=1e-5)
