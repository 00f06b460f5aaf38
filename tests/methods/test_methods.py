"""What each method learns from, starts from and keeps, step after step."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config
from tiny_step import (
  assert_ledger_matches,
  bytes_in,
  files_in,
  make_tasks,
  pixels,
)

from ibdrr_tf.classifiers import classifier as classifiers
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import (
  METHODS,
  Method,
  check_method,
  method,
  method_named,
  register_method,
)
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory
from ibdrr_tf.replay.image_memory import ImageMemory
from ibdrr_tf.replay.memory import NoMemory
from ibdrr_tf.replay.sheet_memory import SheetMemory
from ibdrr_tf.state_config import check_fixed, to_stored
from ibdrr_tf.validation import validate

KEPT = 3
ALL = sorted(METHODS)
WITH_EXEMPLARS = (
  *("a_gem", "der", "der_pp", "gdumb", "gem", "icarl", "lucir", "mnemonics"),
  *("mrdc", "podnet", "raw_replay", "wa"),
)
# Their exemplars are a second stream.
DRAWS = ("a_gem", "der_pp", "er", "gem")
# They keep codes of networks of their own.
WITH_CODERS = ("aqm", "eec", "scalable_recollections")
# They keep no images at all.
WITHOUT = ("dgr", "ewc", "finetune", "gfr", "lwf", "si")
WITH_LATENTS = ("latent_replay", "remind")
WITH_CODES = ("drr", "ib_drr", "ib_drr_star")
WITH_FILES = ("jpeg_replay", "sheet_replay", "upper_bound", "webp_replay")


def test_there_are_thirty_one():
  assert len(ALL) == 31


@pytest.mark.parametrize("name", ALL)
def test_new_classes_and_more_images_of_known_ones(taken, name):
  run = taken(name)
  for task, logits, scores in zip(
    run.tasks, run.logits, run.scores, strict=True
  ):
    assert logits.shape == scores.shape == (len(run.probe), task.classes)
    assert np.isfinite(logits).all()
    np.testing.assert_allclose(scores.sum(axis=1), 1, atol=1e-5)
  assert [task.classes for task in run.tasks] == [2, 2, 3]
  assert run.steps.network.classes == 3
  # The network of each step is another one.
  assert not np.allclose(run.logits[0], run.logits[1])
  assert not np.allclose(run.logits[1], run.logits[2][:, :2])


@pytest.mark.parametrize("name", ALL)
def test_what_is_kept_after_each_step(taken, make, name):
  run = taken(name)
  for step, images in enumerate(kept_images(name)):
    memory = make(name, run.folder / f"after-{step}", step).memory
    assert memory.step == step
    kept = memory.stored_bytes()["images"]
    assert run.ledgers[step].images == kept
    assert name == "mrdc" or kept == images
    exemplars = getattr(
      memory, "exemplars", getattr(memory, "_exemplars", None)
    )
    if name in (*WITH_EXEMPLARS, "ib_drr"):
      counts = np.bincount(exemplars.labels())
      if name != "mrdc":  # It keeps as many as have the bytes of raw ones.
        assert counts.tolist() == [KEPT] * (2 if step < 2 else 3)
    tests = memory.held_out()
    if name in (*WITHOUT, *WITH_LATENTS, *WITH_CODERS):
      assert tests is None
    elif name == "er":  # One of each class: a tenth of three, rounded up.
      assert sorted(tests.labels) == list(range(2 if step < 2 else 3))
    else:
      seen = [0, 1] + [0] * (step > 0) + [1, 2] * (step > 1)
      assert sorted(tests.labels) == sorted(seen)


def kept_images(name):
  """Number of remembered images after each step, those that test included."""
  if name in WITH_EXEMPLARS:
    return [2 * KEPT + 2, 2 * KEPT + 3, 3 * KEPT + 5]
  if name == "er":
    return [2 * KEPT + 2, 2 * KEPT + 2, 3 * KEPT + 3]
  if name in WITH_CODERS:
    return [12, 16, 25]
  if name in WITH_LATENTS:
    return [2 * KEPT, 2 * KEPT, 3 * KEPT]
  if name in WITH_CODES + WITH_FILES:
    return [12 + 2, 16 + 3, 25 + 5]
  return [0, 0, 0]


@pytest.mark.parametrize("name", ALL)
def test_a_class_is_forgotten_and_learning_goes_on(taken, reopen, name):
  """Memory and head lose the class; the step after sees the others."""
  run, steps = taken(name), reopen(name, 2)
  if name == "dgr":
    with pytest.raises(UserError, match="dgr cannot forget a class"):
      steps.forget(3, 0)
    return
  steps.forget(3, 0)
  assert_ledger_matches(steps)
  logits = steps.network.classifier(pixels(run.probe)).numpy()
  np.testing.assert_allclose(logits, run.logits[2][:, 1:], atol=1e-4)
  if steps.memory.held_out() is not None:
    assert set(steps.memory.held_out().labels) == {0, 1}
  examples = steps.memory.examples(run.later)
  old = np.asarray(examples.labels)[: len(examples) - len(run.later.new)]
  if name == "gdumb":  # Memory alone, new images among it.
    assert np.bincount(examples.labels).tolist() == [KEPT] * 3
  elif name in DRAWS:
    assert examples is run.later.new
    counts = np.bincount(steps.memory.exemplars.labels(), minlength=2)
    assert counts.tolist() == [KEPT] * 2 or name == "er"
    if name == "der_pp":
      known = steps.memory.logits(3)[1].sum(axis=1)
      assert known.tolist() == [1] * 3 + [2] * 3
  elif name == "mrdc":
    assert set(old) == {0, 1}
  elif name in WITH_EXEMPLARS:
    assert np.bincount(old).tolist() == [KEPT] * 2
  elif name in (*WITH_CODES, *WITH_FILES, "eec"):
    assert np.bincount(old).tolist() == [9, 6]
  else:
    assert len(old) == 0
  if name in (
    *("drr", "ib_drr_star", "jpeg_replay", "raw_replay", "upper_bound"),
    *("gdumb", "latent_replay", "mrdc", "wa"),
  ):
    return  # They would learn as another method does that is tested.
  steps.learn(run.later)
  assert steps.network.classes == 3
  assert_ledger_matches(steps)
  scores = steps.scores(run.probe)
  assert scores.shape == (len(run.probe), 3) and np.isfinite(scores).all()


@pytest.mark.parametrize(
  "name",
  [
    *("finetune", "raw_replay", "upper_bound", "webp_replay", "ib_drr"),
    *("aqm", "der", "der_pp", "dgr", "eec", "er", "gem", "remind", "si"),
  ],
)
def test_a_new_process_goes_on_to_the_same_result(taken, reopen, name):
  """The baselines' own tests have the others."""
  run, steps = taken(name), reopen(name)
  images = pixels(run.probe)
  np.testing.assert_array_equal(steps.network.classifier(images), run.logits[0])
  network = steps.learn(run.tasks[1])
  np.testing.assert_array_equal(network.classifier(images), run.logits[1])
  assert files_in(steps.folder / "memory") == files_in(
    run.folder / "after-1" / "memory"
  )


def test_upper_bound_sees_everything_from_scratch(taken, reopen):
  run, steps = taken("upper_bound"), reopen("upper_bound", 1)
  examples = steps.memory.examples(run.tasks[2])
  assert np.bincount(examples.labels).tolist() == [10, 9, 6]
  assert run.ledgers[2].raw_exemplars == 30 * 16 * 16 * 3
  first, last = (
    network.classifier.trainable_weights[0].numpy().ravel()
    for network in (steps.network, run.steps.network)
  )
  # Another draw of weights, not the old ones trained further.
  assert abs(np.corrcoef(first, last)[0, 1]) < 0.6


@pytest.mark.parametrize("name", ["raw_replay", "webp_replay", "icarl"])
def test_the_graph_of_a_step_is_built_once(make, tmp_path, monkeypatch, name):
  built = []

  def counted(kind):
    class Counted(kind):
      def train_step(self, data):
        built.append(1)
        return super().train_step(data)

    return Counted

  if name == "webp_replay":
    kind = counted(method.ReplayClassifier)
    monkeypatch.setattr(method, "ReplayClassifier", kind)
  else:
    kind = counted(classifiers.Classifier)
    monkeypatch.setattr(classifiers, "Classifier", kind)
  network = make(name, tmp_path).train(make_tasks({0: 5, 1: 5})[0])
  assert type(network.classifier) is kind
  assert len(built) == 1


def test_finetune_sees_new_images_only_and_keeps_nothing(taken, reopen):
  run, steps = taken("finetune"), reopen("finetune")
  assert steps.memory.examples(run.tasks[1]) is run.tasks[1].new
  ledger = run.ledgers[2]
  assert ledger.total == ledger.index < 200


def test_the_next_step_uses_the_network_of_some_methods():
  unused = {name for name in ALL if not METHODS[name].uses_old_network}
  assert unused == {*WITH_CODES, *WITH_FILES, "gdumb"}


@pytest.mark.parametrize("name", ["finetune", "raw_replay"])
def test_some_methods_start_from_the_last_weights(taken, reopen, name):
  run, steps = taken(name), reopen(name, 1)
  new = steps.new_classifier(run.tasks[2])
  assert new.classes == 3
  np.testing.assert_allclose(
    new(pixels(run.probe))[:, :2], run.logits[1], atol=1e-5
  )


def test_what_learns_from_scratch_may_start_warm():
  config = tiny_config("drr", KEPT)
  assert check_method(config) is METHODS["drr"]
  config.classifier.start = "shrink_perturb"
  warm = check_method(config)
  assert warm.start is method.shrink_perturb and warm.uses_old_network
  assert warm.memory is METHODS["drr"].memory
  config = tiny_config("icarl", KEPT)
  config.classifier.start = "shrink_perturb"
  assert check_method(config) is METHODS["icarl"]


def test_herded_exemplars_are_those_of_the_current_network(make, tmp_path):
  steps = make("raw_replay", tmp_path, memory={"selection": "herding"})
  (task,) = make_tasks({0: 9, 1: 9})
  network = steps.learn(task)
  members = np.flatnonzero(task.new.labels == 0)
  features = network.features(task.new)[members].astype(np.float64)
  unit = features / np.linalg.norm(features, axis=1, keepdims=True)
  closeness = unit @ unit.mean(axis=0)
  images, _ = steps.memory.exemplars.read()
  same = (pixels(task.new)[members] == images[0]).all(axis=(1, 2, 3))
  (place,) = np.flatnonzero(same)
  # Images that are equally close but for rounding are equally good.
  assert closeness[place] > closeness.max() - 1e-6
  assert closeness.min() < closeness.max() - 1e-4


def test_predictions_follow_the_order_of_the_examples(taken):
  run = taken("upper_bound")
  np.testing.assert_allclose(
    run.scores[2], tf.nn.softmax(run.logits[2]), atol=1e-6
  )


def test_methods_say_what_their_memory_needs():
  assert {name for name in ALL if METHODS[name].uses_codec} == set(WITH_CODES)
  raw = {name: METHODS[name].raw_images for name in ALL}
  assert raw["webp_replay"] == raw["jpeg_replay"]
  assert raw["webp_replay"] == ("none", "star", "exemplars")
  assert raw["ib_drr"] == ("none", "exemplars")
  assert raw["ib_drr_star"] == ("none", "star")
  assert raw["icarl"] == raw["finetune"] == ("none",)
  has_budget = {name for name in ALL if METHODS[name].has_budget}
  assert set(ALL) - has_budget == set(WITHOUT)


def test_options_that_do_not_suit_a_method_are_refused():
  config = tiny_config("icarl", KEPT)
  assert check_method(config) is METHODS["icarl"]
  config.memory.information_back = "star"
  with pytest.raises(UserError, match=r"star is not for --method=icarl.*webp"):
    check_method(config)
  config = tiny_config("gfr", KEPT)
  config.memory.total_bytes = 10**6
  with pytest.raises(UserError, match="total_bytes is not for --method=gfr"):
    check_method(config)
  with pytest.raises(UserError, match=r"no method 'drrr': choose .* drr, "):
    method_named("drrr")
  config = tiny_config("ib_drr", KEPT)
  config.memory.selection = "distribution"
  with pytest.raises(UserError, match="distribution is not for --method=ib_d"):
    check_method(config)
  for name in ("drr", "raw_replay"):
    config.method = name
    check_method(config)


@pytest.mark.parametrize(
  ("name", "field", "value", "sentence"),
  [
    ("aqm", "depths", (1,), "of 2 and 1 modules: give as many of both"),
    ("dgr", "widths", (8, 0), "dgr.widths=0 is too small"),
    ("eec", "content", 1.5, "eec.content=1.5 is no share"),
  ],
)
def test_sizes_of_coders_are_checked(name, field, value, sentence):
  config = tiny_config(name, KEPT)
  validate(config)
  config[name][field] = value
  with pytest.raises(UserError, match=sentence):
    validate(config)


def test_a_state_keeps_the_sizes_of_its_coder():
  config = tiny_config("aqm", KEPT)
  stored = to_stored(config)
  check_fixed(config, stored)
  config.dgr.latent += 1  # Of another method.
  config.aqm.coder_epochs += 1
  check_fixed(config, stored)
  config.aqm.entries *= 2
  with pytest.raises(UserError, match=r"config\.aqm\.entries is 256 in this"):
    check_fixed(config, stored)


def test_methods_of_one_s_own_are_registered(monkeypatch, make, tmp_path):
  monkeypatch.setattr(method, "METHODS", METHODS.copy())
  with pytest.raises(UserError, match="'mine' is a dict: give a Method"):
    register_method("mine")({})
  mine = register_method("mine")(Method(memory=NoMemory))
  assert method_named("mine") is mine
  assert "mine" not in METHODS


def test_rows_name_their_memory():
  for name in ALL:
    kind = getattr(METHODS[name].memory, "func", METHODS[name].memory)
    if name in WITH_EXEMPLARS:
      assert issubclass(kind, ExemplarMemory)
    if name in WITH_FILES:
      assert kind is (SheetMemory if name == "sheet_replay" else ImageMemory)


@pytest.mark.parametrize("name", ALL)
def test_the_ledger_has_every_byte_of_a_finished_state(taken, name):
  run = taken(name)
  for step, ledger in enumerate(run.ledgers):
    folder = run.folder / f"after-{step}"
    assert ledger.total == bytes_in(folder / "memory", folder / "codec")
