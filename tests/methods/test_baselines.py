"""Baselines through three phases: teachers, what is kept, and going on."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

from ibdrr_tf.classifiers.classifier import plain
from ibdrr_tf.data.scenario import make_scenario
from ibdrr_tf.data.source import Source, in_memory
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import METHODS
from ibdrr_tf.replay import selection
from ibdrr_tf.validation import validate

BASELINES = ["lwf", "icarl", "lucir", "mnemonics", "gfr"]
CLASSES, PER_CLASS = 4, 10


def tiny_source():
  generator = np.random.default_rng(0)
  labels = np.repeat(np.arange(CLASSES), PER_CLASS)
  images = generator.integers(0, 60, (len(labels), 8, 8, 3), dtype=np.uint8)
  images[..., 0] += (labels * 60).astype(np.uint8)[:, None, None]
  split = in_memory(images, labels)
  names = tuple(f"class {number}" for number in range(CLASSES))
  return Source("tiny", names, split, split)


def make(name, workdir, **section):
  # As a run does; without it, equal runs may differ in the last bit.
  tf.config.experimental.enable_op_determinism()
  config = tiny_config(name, 3)
  config.gfr.generator_epochs = 3
  config.gfr.generator_batch_size = 8
  config.gfr.hidden = 8
  config.gfr.noise = 4
  config.gfr.views = 2
  config.mnemonics.pixel_rate = 1000.0
  config[name].update(section)
  validate(config, tuple(METHODS))
  scenario = make_scenario((3, 1, 0, 2), classes=0, base_classes=2, phases=2)
  return METHODS[name](
    config, scenario, tiny_source(), workdir, tf.distribute.get_strategy()
  )


def run(method, phases):
  for phase in phases:
    method.learn(phase)
    method.remember(phase)


def all_images(method):
  return method.source.train.read(tf.range(len(method.source.train.labels)))


def on_disk(method):
  return sum(p.stat().st_size for p in (method.workdir / "memory").iterdir())


@pytest.fixture(scope="module", params=BASELINES)
def finished(request, tmp_path_factory):
  """A method after all phases, its output and bytes after each, and copies."""
  folder = tmp_path_factory.mktemp("whole")
  method = make(request.param, folder / "w")
  outputs, ledgers = [], []
  for phase in range(3):
    run(method, [phase])
    outputs.append(method.classifier(all_images(method)).numpy())
    ledgers.append((method.stored_bytes(phase), on_disk(method)))
    shutil.copytree(folder / "w", folder / f"after-{phase}")
  return method, outputs, ledgers, folder


def after_base_phase(finished, tmp_path):
  """The same method in a new process, which has finished the base phase."""
  method, _, _, folder = finished
  shutil.copytree(folder / "after-0", tmp_path / "w")
  again = make(method.config.method, tmp_path / "w")
  again.restore(0)
  return again


def only(*names):
  """For a test of some methods."""
  return pytest.mark.parametrize("finished", names, indirect=True)


def test_every_byte_on_disk_is_in_the_ledger(finished):
  method, _, ledgers, _ = finished
  for phase, (stored, total) in enumerate(ledgers):
    images = stored.pop("images")
    assert sum(stored.values()) == total > 0
    assert stored["other_models"] > 4 * method.classifier.embed.count_params()
    has_exemplars = method.config.method in ("icarl", "lucir", "mnemonics")
    assert images == (3 * (2 + phase) if has_exemplars else 0)


def test_a_new_process_goes_on_to_the_same_result(finished, tmp_path):
  method = after_base_phase(finished, tmp_path)
  _, outputs, ledgers, _ = finished
  images = all_images(method)
  np.testing.assert_array_equal(method.classifier(images), outputs[0])
  run(method, [1])
  np.testing.assert_array_equal(method.classifier(images), outputs[1])
  assert on_disk(method) == ledgers[1][1]


def test_a_phase_killed_after_it_was_remembered_is_taken_up(finished, tmp_path):
  """Its teacher is gone by then; and a lost checkpoint is not made up for."""
  method, outputs, _, folder = finished
  shutil.copytree(folder / "after-1", tmp_path / "w")

  def after_base():
    again = make(method.config.method, tmp_path / "w")
    again.restore(0)
    return again

  again = after_base()
  run(again, [1])
  np.testing.assert_array_equal(again.classifier(all_images(again)), outputs[1])
  shutil.rmtree(tmp_path / "w/checkpoints/phase-001")
  with pytest.raises(UserError, match="phase 1"):
    after_base().learn(1)


def test_phases_begin_with_the_old_network_as_teacher_and_student(
  finished, tmp_path
):
  method = after_base_phase(finished, tmp_path)
  images = all_images(method)
  old = method.classifier(images).numpy()
  np.testing.assert_array_equal(method.teacher(1)(images), old)
  new = method._compiled(1, steps=1, options={})
  assert new.classes == 3
  np.testing.assert_allclose(new(images)[:, :2], old, atol=1e-4)


@only("icarl", "lucir")
def test_the_nearest_mean_of_exemplars_is_named(finished):
  method = finished[0]
  images, labels = method._store.read(2)
  embed = method.classifier.embed

  def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)

  means = []
  for label in range(4):
    chosen = images[labels == label]
    plain_mean = unit(embed(chosen).numpy()).mean(axis=0)
    flipped_mean = unit(embed(chosen[:, :, ::-1]).numpy()).mean(axis=0)
    means.append((plain_mean + flipped_mean) / 2)
  means = unit(np.array(means))
  examples = method.new_examples(2)
  features = unit(method.features(examples))
  distances = ((features[:, None] - means) ** 2).sum(axis=2)
  logits = method.classifier(
    examples.read(tf.range(len(examples), dtype=tf.int64))
  )
  wanted = {
    "nearest mean of exemplars": distances.argmin(axis=1),
    "network output": np.argmax(logits, axis=1),
  }
  # iCaRL goes by the means, LUCIR by its logits; each says the other as well.
  others = method.other_predictions(examples)
  for name, predictions in others.items():
    np.testing.assert_array_equal(predictions, wanted.pop(name))
  (main,) = wanted.values()
  np.testing.assert_array_equal(method.predict(examples), main)


def test_class_means_by_hand():
  features = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 5.0]])
  flipped = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 9.0]])
  got = selection.class_means(features, flipped, np.array([0, 1, 1]))
  # Class 0: (1, 0) and (0, 1). Class 1: (0, 1) and (.5, .5).
  want = np.array([[0.5, 0.5], [0.25, 0.75]])
  want /= np.linalg.norm(want, axis=1, keepdims=True)
  np.testing.assert_allclose(got, want)


def cross_entropy(labels, logits):
  shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
  return -np.log(shares[np.arange(len(labels)), labels]).mean()


def softened_cross_entropy(old, new):
  p, q = (
    np.exp(x / 2) / np.exp(x / 2).sum(1, keepdims=True) for x in (old, new)
  )
  return -(p * np.log(q)).sum(axis=1).mean()


def parts_of_the_loss(method, phase=1):
  """Batch, old logits and features, new ones, and what the objective says."""
  new = method._compiled(phase, steps=1, options={})
  for number, weight in enumerate(new.trainable_variables):
    # It begins as the old network, and would have nothing to distil.
    noise = tf.random.stateless_normal(weight.shape, [number, 0])
    weight.assign_add(0.05 * noise)
  objective, names = method.objective(phase, new)
  # All of a batch is of the classes that its method sees in this phase.
  examples = method.examples(phase)
  images = examples.read(tf.range(len(examples), dtype=tf.int64))
  labels = np.asarray(examples.labels)
  extra = ()
  if method.config.method == "gfr":
    noise = tf.random.stateless_normal([len(labels), 4], [1, 2])
    extra = (noise, tf.constant(np.arange(len(labels)) % 2))
  parts, logits = objective(images, tf.constant(labels), *extra)
  assert set(parts) == set(names)
  parts = {name: float(value) for name, value in parts.items()}
  return new, images, labels, extra, parts, logits.numpy()


@only("lwf", "icarl")
def test_distilling_adds_old_logits_to_the_cross_entropy(finished, tmp_path):
  method = after_base_phase(finished, tmp_path)
  _, images, labels, _, parts, logits = parts_of_the_loss(method)
  old = method.teacher(1)(images).numpy()
  kept = softened_cross_entropy(old, logits[:, :2])
  if method.config.method == "lwf":
    # New classes among themselves, and three times the old ones.
    want = cross_entropy(labels - 2, logits[:, 2:]), 3 * kept
  else:
    assert set(labels) == {0, 1, 2}
    want = cross_entropy(labels, logits), kept
  got = parts["cross_entropy"], parts["distillation"]
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_icarl_with_the_paper_s_loss(tmp_path):
  method = make("icarl", tmp_path, loss="sigmoid")
  run(method, [0])
  _, images, labels, _, parts, logits = parts_of_the_loss(method)
  targets = np.eye(3)[labels]
  targets[:, :2] = 1 / (1 + np.exp(-method.teacher(1)(images).numpy()))
  p = 1 / (1 + np.exp(-logits))
  want = -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean()
  assert parts == {"cross_entropy": pytest.approx(want, rel=1e-4)}


@only("lucir")
def test_lucir_weighs_its_three_parts(finished, tmp_path):
  method = after_base_phase(finished, tmp_path)
  new, images, labels, _, parts, logits = parts_of_the_loss(method)
  student = new.up_to("features", "cosines")
  features, cosines = (x.numpy() for x in student(images, training=True))
  old = method.teacher(1).embed(images).numpy()
  norms = np.linalg.norm(features, axis=1) * np.linalg.norm(old, axis=1)
  away = 1 - (features * old).sum(axis=1) / norms
  rows = np.flatnonzero(labels < 2)
  # One new class, so the two hardest are this one.
  true = cosines[rows, labels[rows]]
  ranked = np.maximum(0, 0.5 - true + cosines[rows, 2]).mean()
  want = {
    "cross_entropy": cross_entropy(labels, logits),
    "less_forget": 5 * (2 / 1) ** 0.5 * away.mean(),
    "ranking": ranked,
  }
  assert parts == pytest.approx(want, rel=1e-3, abs=1e-5)


@only("mnemonics")
def test_mnemonics_adds_the_released_distillation(finished, tmp_path):
  method = after_base_phase(finished, tmp_path)
  _, images, labels, _, parts, logits = parts_of_the_loss(method)
  old = method.teacher(1)(images).numpy()
  p, q = (
    np.exp(x / 2) / np.exp(x / 2).sum(1, keepdims=True)
    for x in (old, logits[:, :2])
  )
  want = {
    "cross_entropy": cross_entropy(labels, logits),
    "distillation": (p * np.log(p / q)).mean() * 2**2 * 0.25 * 2,
  }
  assert parts == pytest.approx(want, rel=1e-3, abs=1e-5)


@only("gfr")
def test_gfr_weighs_old_and_new_by_classes(finished, tmp_path):
  method = after_base_phase(finished, tmp_path)
  new, images, labels, extra, parts, logits = parts_of_the_loss(method)
  features = new.embed(images).numpy()
  old = method.teacher(1).embed(images).numpy()
  generator = method._build_generator()
  method._generators.read(0, generator)
  one_hot = np.eye(CLASSES, dtype=np.float32)[extra[1].numpy()]
  replayed = new.get_layer("logits")(generator([extra[0], one_hot])).numpy()
  # Two base classes and one new one: the old count twice.
  want = {
    "feature_distance": 2 * np.sqrt(((features - old) ** 2).sum()),
    "cross_entropy": cross_entropy(labels, logits) / 3,
    "replayed": 2 * cross_entropy(extra[1].numpy(), replayed) / 3,
  }
  assert parts == pytest.approx(want, rel=1e-3, abs=1e-5)


@only("lucir")
def test_lucir_imprints_new_classes(finished, tmp_path):
  method = after_base_phase(finished, tmp_path)
  new = method._compiled(1, steps=1, options={})
  examples = method.new_examples(1)
  features = method.features(examples)
  features /= np.linalg.norm(features, axis=1, keepdims=True)
  weights = new.get_layer("cosines").class_weights.numpy()
  direction = features.mean(axis=0)
  direction /= np.linalg.norm(direction)
  norm = np.linalg.norm(weights[:, :2], axis=0).mean()
  np.testing.assert_allclose(weights[:, 2], norm * direction, atol=1e-5)


@only("lucir")
def test_lucir_leaves_old_class_weights_alone(finished, tmp_path):
  new = finished[0].classifier.get_layer("cosines")
  old = after_base_phase(finished, tmp_path).classifier.get_layer("cosines")
  np.testing.assert_array_equal(new.class_weights[:, :2], old.class_weights)


@only("mnemonics")
def test_mnemonics_freezes_filters_and_learns_scales(finished, tmp_path):
  method = finished[0]
  base = after_base_phase(finished, tmp_path)
  scales = []
  for old, new in zip(
    base.classifier.layers, method.classifier.layers, strict=True
  ):
    if hasattr(old, "shift"):
      np.testing.assert_array_equal(old.kernel, new.kernel)
      np.testing.assert_array_equal(old.scale, np.ones(old.scale.shape))
      scales.append(float(np.abs(new.scale - 1.0).max()))
      assert np.abs(new.shift).max() > 0
  assert min(scales) > 0


@only("mnemonics")
def test_mnemonics_keeps_learned_pixels(finished, tmp_path):
  method = after_base_phase(finished, tmp_path)
  kept, labels = method._store.read(0)
  method.section.pixel_rate = 1e-12  # leaves herded images as they are
  method.remember(0)
  herded, same_labels = method._store.read(0)
  np.testing.assert_array_equal(labels, same_labels)
  assert (kept != herded).mean() > 0.01


@only("gfr", "mnemonics")
def test_frozen_batch_norm_can_be_differentiated_on_gpus(finished):
  """The fused form cannot, where ops must be deterministic."""
  method, *_ = finished
  layers = [
    layer
    for layer in method.classifier.layers
    if isinstance(layer, tf.keras.layers.BatchNormalization)
  ]
  assert layers and not any(layer.fused for layer in layers)


@only("gfr")
def test_gfr_killed_between_critic_and_generator_is_taken_up(
  finished, tmp_path
):
  _, outputs, ledgers, folder = finished
  shutil.copytree(folder / "after-1", tmp_path / "w")
  memory = tmp_path / "w/memory"
  (memory / "generator-001.npz").unlink()
  shutil.copy(folder / "after-0/memory/generator-000.npz", memory)
  again = make("gfr", tmp_path / "w")
  again.restore(0)
  run(again, [1])
  np.testing.assert_array_equal(again.classifier(all_images(again)), outputs[1])
  assert on_disk(again) == ledgers[1][1]


@only("gfr")
def test_gfr_freezes_batch_statistics_after_the_base_phase(finished, tmp_path):
  method = finished[0]
  base = after_base_phase(finished, tmp_path)

  def statistics(network):
    return [w.numpy() for w in network.weights if "moving" in w.name]

  pairs = zip(
    statistics(base.classifier), statistics(method.classifier), strict=True
  )
  for old, new in pairs:
    np.testing.assert_array_equal(old, new)
  # It has learned all the same, and there is no generator of the last phase.
  assert np.any(
    base.classifier.trainable_weights[0] != method.classifier.weights[0]
  )
  names = {p.name for p in (method.workdir / "memory").iterdir()}
  assert names == {"network-002.npz", "generator-001.npz", "critic-001.npz"}


def test_parameters_are_counted_in_the_plain_network(finished):
  method, outputs, _, _ = finished
  network = plain(method.classifier)
  np.testing.assert_allclose(network(all_images(method)), outputs[2], atol=1e-4)
