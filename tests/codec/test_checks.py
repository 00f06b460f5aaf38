import pytest
import tensorflow as tf

from ibdrr_tf.codec import checks
from ibdrr_tf.errors import UserError


def test_what_is_guarded_waits_for_its_checks():
  """An op that would fail by itself never runs before the check.

  The check takes long, and the guarded op is ready at once: without an edge
  between them, its own error would come first.
  """

  @tf.function
  def look_up(index):
    # Of the argument, or TensorFlow would compute it beforehand.
    slow = tf.fill([400, 400], 0.0 * tf.cast(index[0], tf.float32))
    for _ in range(40):
      slow = tf.matmul(slow, slow)
    is_right = tf.reduce_all(index < 3) & (tf.reduce_sum(slow) == 0)
    index = checks.guarded(index, [(is_right, "the index is too large")])
    return tf.gather([1, 2, 3], index)

  assert look_up(tf.constant([2])).numpy().tolist() == [3]
  for _ in range(5):
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
      look_up(tf.constant([7]))
    told = checks.as_user_error(error.value, "another")
    assert str(told) == "the index is too large."


def test_what_is_guarded_has_an_edge_from_its_check():
  """However fast the check is, and whatever else the machine does."""

  @tf.function(input_signature=[tf.TensorSpec([None], tf.int32)])
  def look_up(index):
    index = checks.guarded(index, [(index < 3, "the index is too large")])
    return tf.gather([1, 2, 3], index)

  graph = look_up.get_concrete_function().graph
  waiting = [op for op in graph.get_operations() if op.type == "GatherV2"]
  before = set()
  while waiting:
    op = waiting.pop()
    if op not in before:
      before.add(op)
      waiting += [value.op for value in op.inputs] + list(op.control_inputs)
  assert any("assert" in op.name.lower() for op in before)


def test_the_first_condition_that_fails_is_told():
  conditions = [(True, "one is"), ([True, False], "two is"), (False, "three")]
  with pytest.raises(tf.errors.InvalidArgumentError) as error:
    checks.guarded(tf.constant(1), conditions)
  assert str(checks.as_user_error(error.value, "")) == "two is."
  with pytest.raises(tf.errors.InvalidArgumentError) as error:
    tf.reshape(tf.zeros([3]), [2])
  assert str(checks.as_user_error(error.value, "It broke.")) == "It broke."
  with pytest.raises(UserError, match=r"^two is\.$"), checks.told("another"):
    checks.guarded(tf.constant(1), conditions)
