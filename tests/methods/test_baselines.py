"""Baselines: teachers, losses, what is kept, and going on."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_step import files_in, make_tasks, pixels

from ibdrr_tf.classifiers.classifier import plain
from ibdrr_tf.data.examples import take
from ibdrr_tf.methods import METHODS, lucir, podnet

BASELINES = ["lwf", "icarl", "lucir", "mnemonics", "gfr", "wa", "podnet"]
for_all = pytest.mark.parametrize("name", BASELINES)


@for_all
def test_a_new_process_goes_on_to_the_same_result(taken, reopen, name):
  run, steps = taken(name), reopen(name)
  images = pixels(run.probe)
  np.testing.assert_array_equal(steps.network.classifier(images), run.logits[0])
  np.testing.assert_allclose(steps.scores(run.probe), run.scores[0], atol=1e-6)
  network = steps.train(run.tasks[1])
  np.testing.assert_array_equal(network.classifier(images), run.logits[1])
  # Killed after it was remembered, before the step counts: taken up again.
  steps.memory.add(run.tasks[1], network)
  again = reopened_in(steps, run.tasks[0])
  network = again.learn(run.tasks[1])
  np.testing.assert_array_equal(network.classifier(images), run.logits[1])
  assert files_in(again.folder / "memory") == files_in(
    run.folder / "after-1" / "memory"
  )


def reopened_in(steps, task):
  """Another process in the same folder, after a task."""
  again = type(steps)(steps.config, steps.folder, step=task.step)
  again.load_network(task)
  return again


@for_all
def test_steps_begin_with_the_old_network(taken, reopen, name):
  run, steps = taken(name), reopen(name, 1)
  assert METHODS[name].needs_old_network
  new = steps.new_classifier(run.tasks[2])
  assert new.classes == 3
  np.testing.assert_allclose(
    new(pixels(run.probe))[:, :2], run.logits[1], atol=1e-4
  )


@pytest.mark.parametrize("name", ["icarl", "lucir"])
def test_the_nearest_mean_of_exemplars_is_named(taken, name):
  run = taken(name)
  steps = run.steps
  images, labels = steps.memory.exemplars.read()
  embed = steps.network.classifier.embed

  def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)

  means = []
  for label in range(3):
    chosen = images[labels == label]
    plain_mean = unit(embed(chosen).numpy()).mean(axis=0)
    flipped_mean = unit(embed(chosen[:, :, ::-1]).numpy()).mean(axis=0)
    means.append((plain_mean + flipped_mean) / 2)
  means = unit(np.array(means))
  features = unit(steps.network.features(run.probe))
  distances = ((features[:, None] - means) ** 2).sum(axis=2)
  wanted = {
    "nearest mean of exemplars": distances.argmin(axis=1),
    "network output": run.logits[2].argmax(axis=1),
  }
  # iCaRL goes by the means, LUCIR by its logits; each says the other as well.
  for other, predict in steps.method.also.items():
    scores = predict(steps.network, steps.memory, run.probe)
    np.testing.assert_array_equal(scores.argmax(axis=1), wanted.pop(other))
  (main,) = wanted.values()
  np.testing.assert_array_equal(run.scores[2].argmax(axis=1), main)


def test_a_class_without_exemplars_is_never_named(taken, reopen):
  run, steps = taken("icarl"), reopen("icarl", 2)
  kept = steps.memory.exemplars.store.read()
  for step, missing in ((3, 1), (4, 2)):  # In the middle; and the last one.
    kept = kept.take(kept.labels != missing)
    steps.memory._write(step, kept)
    scores = steps.scores(run.probe)
    assert scores.shape == (len(run.probe), 3) and np.isfinite(scores).all()
    assert missing not in scores.argmax(axis=1)


def cross_entropy(labels, logits):
  shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
  return -np.log(shares[np.arange(len(labels)), labels]).mean()


def softened(logits):
  shares = np.exp(logits / 2)
  return shares / shares.sum(axis=1, keepdims=True)


def softened_cross_entropy(old, new):
  return -(softened(old) * np.log(softened(new))).sum(axis=1).mean()


def parts_of_the_loss(steps, task):
  """The classifier of a step, a batch, and what the objective says of it."""
  new = steps.new_classifier(task)
  for number, weight in enumerate(new.trainable_variables):
    # It begins as the old network, and would have nothing to distil.
    noise = tf.random.stateless_normal(weight.shape, [number, 0])
    weight.assign_add(0.05 * noise)
  objective, names = steps.method.objective(steps.step(task), new)
  # All that the method sees in this step.
  examples = steps.memory.examples(task)
  images, labels = pixels(examples), np.asarray(examples.labels)
  extra = ()
  if steps.config.method == "gfr":
    noise = tf.random.stateless_normal([len(labels), 4], [1, 2])
    extra = (noise, tf.constant(np.arange(len(labels)) % 2))
  parts, logits = objective(tf.constant(images), tf.constant(labels), *extra)
  assert set(parts) == set(names)
  parts = {name: float(value) for name, value in parts.items()}
  return new, images, labels, extra, parts, logits.numpy()


@pytest.mark.parametrize("name", ["lwf", "icarl", "wa"])
def test_distilling_adds_old_logits_to_the_cross_entropy(taken, reopen, name):
  run, steps = taken(name), reopen(name, 1)
  _, images, labels, _, parts, logits = parts_of_the_loss(steps, run.tasks[2])
  old = steps.network.classifier(images).numpy()
  kept = softened_cross_entropy(old, logits[:, :2])
  if name == "lwf":
    # New classes among themselves, and three times the old ones.
    assert set(labels) == {1, 2}
    hidden = logits.copy()
    hidden[labels == 2, :2] = -1e9
    want = cross_entropy(labels, hidden), 3 * kept
  else:
    assert set(labels) == {0, 1, 2}
    want = cross_entropy(labels, logits), kept
  if name == "wa":  # Two of three classes are old.
    want = want[0] / 3, 2 * want[1] / 3
  got = parts["cross_entropy"], parts["distillation"]
  np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_icarl_with_the_paper_s_loss(make, tmp_path):
  tasks = make_tasks({0: 5, 1: 5}, {2: 5})
  steps = make("icarl", tmp_path, loss="sigmoid")
  steps.learn(tasks[0])
  _, images, labels, _, parts, logits = parts_of_the_loss(steps, tasks[1])
  targets = np.eye(3)[labels]
  old = steps.network.classifier(images).numpy()
  targets[:, :2] = 1 / (1 + np.exp(-old))
  p = 1 / (1 + np.exp(-logits))
  want = -(targets * np.log(p) + (1 - targets) * np.log(1 - p)).mean()
  assert parts == {"cross_entropy": pytest.approx(want, rel=1e-4)}


@pytest.mark.parametrize("name", ["lucir", "mnemonics"])
def test_lucir_weighs_its_three_parts(taken, reopen, name):
  run, steps = taken(name), reopen(name, 1)
  new, images, labels, _, parts, logits = parts_of_the_loss(steps, run.tasks[2])
  student = new.up_to("features", "cosines")
  features, cosines = (x.numpy() for x in student(images, training=True))
  old = steps.network.classifier.embed(images).numpy()
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


def test_mnemonics_adds_the_released_distillation(taken, reopen):
  run, steps = taken("mnemonics"), reopen("mnemonics", 1)
  steps.config.mnemonics.loss = "released"
  _, images, labels, _, parts, logits = parts_of_the_loss(steps, run.tasks[2])
  p = softened(steps.network.classifier(images).numpy())
  q = softened(logits[:, :2])
  want = {
    "cross_entropy": cross_entropy(labels, logits),
    "distillation": (p * np.log(p / q)).mean() * 2**2 * 0.25 * 2,
  }
  assert parts == pytest.approx(want, rel=1e-3, abs=1e-5)


def test_podnet_weighs_its_three_parts(taken, reopen):
  run, steps = taken("podnet"), reopen("podnet", 1)
  new, images, labels, _, parts, logits = parts_of_the_loss(steps, run.tasks[2])
  names = ("stage_0", "stage_1", "stage_2", "features")
  *stages, features = new.up_to(*names)(images, training=True)
  *old_stages, old = steps.network.classifier.up_to(*names)(images)
  factor = (3 / 1) ** 0.5
  want = {
    "nca": float(podnet.nca_loss(labels, logits, 0.6)),
    "pod_spatial": 5 * factor * podnet.pooled_distance(stages, old_stages),
    "pod_flat": factor * lucir.less_forget_loss(features, old),
  }
  assert parts == pytest.approx(
    {name: float(value) for name, value in want.items()}, rel=1e-3, abs=1e-5
  )


def test_podnet_tunes_on_equally_many_of_each_class(taken, reopen, monkeypatch):
  run, steps = taken("podnet"), reopen("podnet", 1)
  seen = []

  def look(network, examples, **options):
    seen.append((np.bincount(examples.labels).tolist(), options["schedule"]))
    return 1.0

  monkeypatch.setattr(podnet, "train_further", look)
  step = steps.step(run.tasks[2])
  assert steps.method.finish(step, steps.network) == 1.0
  ((counts, schedule),) = seen
  assert counts == [3, 3, 3] and schedule.learning_rate == 0.005


def test_der_adds_a_backbone_for_new_classes_only(taken, reopen):
  run, before = taken("der"), reopen("der", 1).network.classifier
  after = run.steps.network.classifier
  assert before.backbones == 1 and after.backbones == 2
  # The first stays as it was, batch statistics too; the second has learned.
  for number, same in ((0, True), (1, False)):
    pairs = zip(
      before.backbone(0).get_weights(),
      after.backbone(number).get_weights(),
      strict=True,
    )
    assert all((a == b).all() for a, b in pairs) == same
  features = after.embed(pixels(run.probe)).numpy()
  parts = [after.backbone(k)(pixels(run.probe)).numpy() for k in (0, 1)]
  np.testing.assert_array_equal(features, np.concatenate(parts, axis=1))
  # The auxiliary head is gone.
  again = reopen("der", 2).network.classifier
  np.testing.assert_array_equal(again(pixels(run.probe)), run.logits[2])


def test_der_starts_from_the_last_network(taken, reopen):
  run, steps = taken("der"), reopen("der", 1)
  new = steps.new_classifier(run.tasks[2])
  old = steps.network.classifier
  for number in (0, 1):
    for a, b in zip(
      old.backbone(0).get_weights(),
      new.backbone(number).get_weights(),
      strict=True,
    ):
      np.testing.assert_array_equal(a, b)
  kernel, _ = new.get_layer("logits").get_weights()
  old_kernel, _ = old.get_layer("logits").get_weights()
  np.testing.assert_array_equal(kernel[: len(old_kernel), :2], old_kernel)


def test_der_judges_the_new_backbone_alone(taken, reopen):
  run, steps = taken("der"), reopen("der", 1)
  new, images, labels, _, parts, logits = parts_of_the_loss(steps, run.tasks[2])
  features = new.backbone(1)(images, training=True).numpy()
  kernel, bias = new.auxiliary.get_weights()
  own = features @ kernel + bias
  want = {
    "cross_entropy": cross_entropy(labels, logits),
    # Old classes are one, 0; the new class is 1.
    "auxiliary": cross_entropy(np.where(labels == 2, 1, 0), own),
  }
  assert parts == pytest.approx(want, rel=1e-3, abs=1e-5)


def test_wa_ends_with_weights_of_equal_length(taken, reopen):
  run = taken("wa")
  kernel, _ = run.steps.network.classifier.get_layer("logits").get_weights()
  norms = np.linalg.norm(kernel, axis=0)
  assert norms[2] == pytest.approx(norms[:2].mean(), rel=1e-5)


def test_gfr_weighs_old_and_new_by_classes(taken, reopen):
  run, steps = taken("gfr"), reopen("gfr", 1)
  new, images, labels, extra, parts, logits = parts_of_the_loss(
    steps, run.tasks[2]
  )
  features = new.embed(images).numpy()
  old = steps.network.classifier.embed(images).numpy()
  generator = steps.memory.network("generator")
  one_hot = np.eye(2, dtype=np.float32)[extra[1].numpy()]
  replayed = new.get_layer("logits")(generator([extra[0], one_hot])).numpy()
  # Two old classes and one new one: the old count twice.
  want = {
    "feature_distance": 2 * np.sqrt(((features - old) ** 2).sum()),
    "cross_entropy": cross_entropy(labels, logits) / 3,
    "replayed": 2 * cross_entropy(extra[1].numpy(), replayed) / 3,
  }
  assert parts == pytest.approx(want, rel=1e-3, abs=1e-5)


def test_lucir_imprints_new_classes(taken, reopen):
  run, steps = taken("lucir"), reopen("lucir", 1)
  task = run.tasks[2]
  weights = steps.new_classifier(task).get_layer("cosines").class_weights
  fresh = take(task.new, np.flatnonzero(task.new.labels == 2))
  features = steps.network.features(fresh)
  features /= np.linalg.norm(features, axis=1, keepdims=True)
  direction = features.mean(axis=0)
  direction /= np.linalg.norm(direction)
  norm = np.linalg.norm(weights[:, :2], axis=0).mean()
  np.testing.assert_allclose(weights[:, 2], norm * direction, atol=1e-5)


def test_lucir_leaves_old_class_weights_alone(taken, reopen):
  """In the step without new classes as well as in the one with some."""

  def weights(steps):
    layer = steps.network.classifier.get_layer("cosines")
    return layer.class_weights.numpy()

  first = weights(reopen("lucir", 0))
  np.testing.assert_array_equal(weights(reopen("lucir", 1)), first)
  last = weights(taken("lucir").steps)
  assert last.shape[1] == 3
  np.testing.assert_array_equal(last[:, :2], first)


def test_mnemonics_freezes_filters_and_learns_scales(taken, reopen):
  base = reopen("mnemonics").network.classifier
  last = taken("mnemonics").steps.network.classifier
  scales = []
  for old, new in zip(base.layers, last.layers, strict=True):
    if hasattr(old, "shift"):
      np.testing.assert_array_equal(old.kernel, new.kernel)
      np.testing.assert_array_equal(old.scale, np.ones(old.scale.shape))
      scales.append(float(np.abs(new.scale - 1.0).max()))
      assert np.abs(new.shift).max() > 0
  assert min(scales) > 0


def test_mnemonics_keeps_learned_pixels_of_new_classes(
  taken, reopen, make, tmp_path
):
  run, steps = taken("mnemonics"), reopen("mnemonics")
  kept, labels = steps.memory.exemplars.read()
  # A rate of nothing leaves herded images as they are.
  plain_steps = make("mnemonics", tmp_path / "plain", pixel_rate=1e-12)
  plain_steps.keep(run.tasks[0], steps.network)
  herded, same_labels = plain_steps.memory.exemplars.read()
  np.testing.assert_array_equal(labels, same_labels)
  assert (kept != herded).mean() > 0.01
  raw = {image.tobytes() for image in pixels(run.tasks[0].new)}
  assert all(image.tobytes() in raw for image in herded)
  # Those of old classes stay as they were learned.
  now, now_labels = run.steps.memory.exemplars.read()
  for label in (0, 1):
    np.testing.assert_array_equal(
      now[now_labels == label], kept[labels == label]
    )


@pytest.mark.parametrize("name", ["gfr", "mnemonics"])
def test_frozen_batch_norm_can_be_differentiated_on_gpus(taken, name):
  """The fused form cannot, where ops must be deterministic."""
  layers = [
    layer
    for layer in taken(name).steps.network.classifier.layers
    if isinstance(layer, tf.keras.layers.BatchNormalization)
  ]
  assert layers and not any(layer.fused for layer in layers)


def test_gfr_freezes_batch_statistics_after_the_first_step(taken, reopen):
  base = reopen("gfr").network.classifier
  last = taken("gfr").steps.network.classifier

  def statistics(network):
    return [w.numpy() for w in network.weights if "moving" in w.name]

  for old, new in zip(statistics(base), statistics(last), strict=True):
    np.testing.assert_array_equal(old, new)
  # It has learned all the same.
  assert np.any(base.trainable_weights[0] != last.trainable_weights[0])


def test_gfr_grows_its_generator_with_the_classes(taken, reopen):
  run = taken("gfr")
  for step, classes in enumerate((2, 2, 3)):
    memory = reopen("gfr", step).memory
    for name in ("generator", "critic"):
      assert memory.network(name).input_shape[1][-1] == classes
    names = set(files_in(memory.folder.path))
    assert names == {
      f"generator-{step:03d}.npz",
      f"critic-{step:03d}.npz",
      f"manifest-{step:03d}.json",
    }
    sizes = [path.stat().st_size for path in memory.folder.path.glob("*.npz")]
    assert run.ledgers[step].other_models == sum(sizes)


def test_gfr_goes_on_from_the_last_generator(taken, reopen):
  """Before it learns, it says of old classes what the last one did."""
  run, steps = taken("gfr"), reopen("gfr", 1)
  old = steps.memory.network("generator")
  gan = steps.memory._build_gan(run.tasks[2], steps.network, rounds=1)
  noise = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
  labels = np.arange(6) % 2
  np.testing.assert_allclose(
    gan.generator([noise, np.eye(3, dtype=np.float32)[labels]]),
    old([noise, np.eye(2, dtype=np.float32)[labels]]),
    atol=1e-6,
  )


@pytest.mark.parametrize("name", [*BASELINES, "der"])
def test_the_plain_network_says_the_same(taken, name):
  run = taken(name)
  network = plain(run.steps.network.classifier)
  np.testing.assert_allclose(
    network(pixels(run.probe)), run.logits[2], atol=1e-4
  )
