import numpy as np
import pytest

from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import predictions
from ibdrr_tf.evaluation.predictions import UNSEEN, Predictions


@pytest.fixture
def kept():
  """Two classes, then a third; images of classes are not in runs."""
  labels = np.array([2, 0, 1, 0, 2])
  base = Predictions.none(labels).add(2, np.array([0, 0, 1]))
  return base.add(3, np.array([2, 0, 1, 2, 1]))


def test_images_of_later_classes_are_not_judged(kept):
  assert kept.predicted.dtype == np.uint16
  assert kept.predicted.tolist() == [[UNSEEN, 0, 0, 1, UNSEEN], [2, 0, 1, 2, 1]]
  assert kept.right(0).tolist() == [True, False, False]
  assert kept.right(1).tolist() == [True, True, True, False, False]


def test_they_come_back_from_the_disk(kept, tmp_path):
  assert predictions.read_predictions(tmp_path) is None
  kept.write(tmp_path)
  again = predictions.read_predictions(tmp_path)
  np.testing.assert_array_equal(again.labels, kept.labels)
  np.testing.assert_array_equal(again.predicted, kept.predicted)
  assert [path.name for path in tmp_path.iterdir()] == [predictions.FILE]


def test_a_phase_that_is_evaluated_again_is_replaced(kept):
  assert kept.up_to(1).predicted.tolist() == kept.predicted[:1].tolist()
  # The file of an earlier phase may have been lost.
  assert (kept.up_to(3).predicted[2] == UNSEEN).all()


@pytest.mark.parametrize("damage", ["cut", "other"])
def test_damage_is_named(kept, tmp_path, damage):
  kept.write(tmp_path)
  path = tmp_path / predictions.FILE
  if damage == "cut":
    path.write_bytes(path.read_bytes()[:-30])
  else:
    np.savez(path, labels=kept.labels, predicted=kept.predicted[:, 1:])
  with pytest.raises(UserError, match=r"predictions.npz is damaged"):
    predictions.read_predictions(tmp_path)
