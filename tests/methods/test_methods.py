"""What each method learns from, starts from and keeps."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.data.scenario import make_scenario
from ibdrr_tf.data.source import Source, in_memory
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import METHODS

CLASSES, PER_CLASS = 6, 12


def tiny_source():
  """Classes of one red each, with noise; pixel [0, 0, 1] tells images apart."""
  labels = np.repeat(np.arange(CLASSES), PER_CLASS)
  images = np.zeros((len(labels), 8, 8, 3), np.uint8)
  images[..., 0] = (labels * 40)[:, None, None]
  images[:, 0, 0, 1] = np.arange(len(labels))
  noise = np.random.default_rng(0).integers(0, 256, images.shape[:3])
  images[..., 2] = noise
  split = in_memory(images, labels)
  names = tuple(f"class {number}" for number in range(CLASSES))
  return Source("tiny", names, split, split)


@pytest.fixture
def make(tmp_path):
  def make_method(name, **memory):
    config = tiny_config(name, 3)
    config.memory.update(memory)
    scenario = make_scenario(
      (5, 4, 3, 2, 1, 0), classes=0, base_classes=2, phases=2
    )
    return METHODS[name](
      config, scenario, tiny_source(), tmp_path, tf.distribute.get_strategy()
    )

  return make_method


def learn(method, phases):
  for phase in range(phases):
    method.learn(phase)
    method.remember(phase)


def first_kernel(method):
  return method.classifier.trainable_weights[0].numpy().ravel()


def test_upper_bound_sees_everything_from_scratch(make):
  method = make("upper_bound")
  assert np.bincount(method.examples(2).labels).tolist() == [PER_CLASS] * 6
  learn(method, 1)
  first = first_kernel(method)
  method.learn(1)
  # Another draw of weights, not the old ones trained further.
  assert abs(np.corrcoef(first, first_kernel(method))[0, 1]) < 0.6
  assert method.stored_bytes(1) == {
    "raw_exemplars": 4 * PER_CLASS * 8 * 8 * 3,
    "images": 4 * PER_CLASS,
  }


def test_the_graph_of_a_step_is_built_once(make):
  built = []

  class Counted(classifiers.Classifier):
    def train_step(self, data):
      built.append(1)
      return super().train_step(data)

  method = make("upper_bound")
  method.classifier_class = Counted
  method.learn(0)
  assert len(built) == 1


def test_finetune_sees_new_classes_only_and_keeps_nothing(make):
  method = make("finetune")
  assert set(method.examples(1).labels) == {2, 3}
  assert method.stored_bytes(1) == {"images": 0}


def test_finetune_starts_from_the_last_weights(make):
  method = make("finetune")
  learn(method, 1)
  old = method.classifier
  new = method._compiled(1, steps=1, options={})
  assert old.classes == 2 and new.classes == 4
  images = method.new_examples(0).read(tf.range(5, dtype=tf.int64))
  np.testing.assert_allclose(new(images)[:, :2], old(images), atol=1e-5)


@pytest.mark.parametrize("selection", ["random", "herding"])
def test_raw_replay_adds_exemplars_of_every_old_class(make, selection):
  method = make("raw_replay", selection=selection)
  learn(method, 2)
  examples = method.examples(2)
  assert np.bincount(examples.labels).tolist() == [3, 3, 3, 3, 12, 12]
  images = examples.read(tf.range(len(examples), dtype=tf.int64)).numpy()
  # Label l is source class 5 - l: the colour says whose image it is,
  np.testing.assert_array_equal(
    images[:, 4, 4, 0], (5 - examples.labels.astype(int)) * 40
  )
  # and no exemplar is taken twice.
  assert len(set(images[:, 0, 0, 1])) == len(examples)
  stored = method.stored_bytes(1)
  files = (method.workdir / "memory").iterdir()
  assert stored["images"] == 12
  assert stored["raw_exemplars"] == sum(f.stat().st_size for f in files)


def test_herded_exemplars_are_those_of_the_current_network(make):
  method = make("raw_replay", selection="herding")
  learn(method, 1)
  new = method.new_examples(0)
  features = method.features(new)[new.labels == 0].astype(np.float64)
  unit = features / np.linalg.norm(features, axis=1, keepdims=True)
  members = np.flatnonzero(new.labels == 0)
  closeness = unit @ unit.mean(axis=0)
  images, labels = method._store.read(0)
  kept = images[labels == 0][0, 0, 0, 1]
  place = (
    new.read(tf.constant(members)).numpy()[:, 0, 0, 1].tolist().index(kept)
  )
  # Images that are equally close but for rounding are equally good.
  assert closeness[place] > closeness.max() - 1e-6
  assert closeness.min() < closeness.max() - 1e-4


def test_predictions_follow_the_order_of_the_examples(make):
  method = make("upper_bound")
  learn(method, 1)
  examples = method.new_examples(0)
  logits = method.classifier(
    examples.read(tf.range(len(examples), dtype=tf.int64))
  )
  np.testing.assert_array_equal(
    method.predict(examples), np.argmax(logits, axis=1)
  )


def bytes_on_disk(method):
  return sum(p.stat().st_size for p in (method.workdir / "memory").iterdir())


@pytest.mark.parametrize("selection", ["random", "herding"])
def test_raw_replay_keeps_what_fits_a_budget(make, selection):
  by_number = make("raw_replay", exemplars_per_class=4, selection="random")
  run_untrained(by_number)
  budget = bytes_on_disk(by_number)
  method = make("raw_replay", total_bytes=budget, selection=selection)
  run_untrained(method)
  assert bytes_on_disk(method) <= budget
  counts = np.bincount(method._store.read(2)[1])
  assert len(set(counts)) == 1
  # Which images herding takes is not known before, so it may take fewer.
  assert counts[0] == 4 if selection == "random" else 1 <= counts[0] <= 4


def test_a_budget_for_more_than_all_images_keeps_them_all(make):
  method = make("raw_replay", total_bytes=10**9)
  run_untrained(method)
  counts = np.bincount(method._store.read(2)[1])
  assert counts.tolist() == [PER_CLASS] * CLASSES


def test_a_budget_for_less_than_an_image_is_refused_at_once(make):
  with pytest.raises(UserError, match="total_bytes=9 is too small"):
    make("raw_replay", total_bytes=9)


def run_untrained(method):
  """Remembers all phases; what is kept does not depend on training."""
  for phase in method.scenario.phases:
    method.classifier = method._compiled(phase, steps=1, options={})
    method.remember(phase)
