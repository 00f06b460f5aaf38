import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import losses


def softmax(x):
  e = np.exp(x - x.max(axis=1, keepdims=True))
  return e / e.sum(axis=1, keepdims=True)


def test_cross_entropy_is_minus_log_of_the_true_share():
  logits = np.log([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).astype(np.float32)
  want = -(np.log(0.25) + np.log(0.8)) / 2
  got = losses.cross_entropy(tf.constant([1, 1]), tf.constant(logits))
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_distillation_against_numpy():
  generator = np.random.default_rng(0)
  old, new = generator.normal(size=(2, 4, 3)).astype(np.float32) * 3
  want = -(softmax(old / 2) * np.log(softmax(new / 2))).sum(axis=1).mean()
  got = losses.distillation(tf.constant(old), tf.constant(new), 2.0)
  np.testing.assert_allclose(got, want, rtol=1e-5)


def test_distillation_is_least_at_the_old_output_and_teaches_only_the_new():
  old = tf.constant([[1.0, -2.0, 0.5]])
  new = tf.Variable(old)
  teacher = tf.Variable(old)
  with tf.GradientTape() as tape:
    loss = losses.distillation(teacher, new, 2.0)
  to_new, to_teacher = tape.gradient(loss, [new, teacher])
  np.testing.assert_allclose(to_new, np.zeros([1, 3]), atol=1e-6)
  assert to_teacher is None
