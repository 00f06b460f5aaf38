"""WebP and JPEG replay: what is kept, and twins that belong to it."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

from ibdrr_tf.data import stream
from ibdrr_tf.data.scenario import make_scenario
from ibdrr_tf.data.source import Source, in_memory
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import METHODS, Method
from ibdrr_tf.replay import exemplars, lossy_images
from ibdrr_tf.validation import validate

CLASSES, PER_CLASS, KEPT, SIZE = 4, 8, 2, 16
PHASES = range(3)
PEERS = ["webp_replay", "jpeg_replay"]


@pytest.fixture(scope="module")
def source():
  """Smooth images, each with colours of its own; classes are not in runs."""
  generator = np.random.default_rng(0)
  labels = np.tile(np.arange(CLASSES), PER_CLASS)
  corners = generator.integers(0, 256, (len(labels), 2, 2, 3))
  images = tf.image.resize(corners, [SIZE, SIZE]).numpy().astype(np.uint8)
  split = in_memory(images, labels)
  names = tuple(f"class {number}" for number in range(CLASSES))
  return Source("tiny", names, split, split)


@pytest.fixture
def make(tmp_path, source):
  def make_method(name, folder="w", **memory):
    # As a run does; without it, equal runs may differ in the last bit.
    tf.config.experimental.enable_op_determinism()
    config = tiny_config(name, KEPT)
    config.memory.quality = 60
    config.memory.update(memory)
    validate(config, tuple(METHODS))
    scenario = make_scenario((3, 1, 0, 2), classes=0, base_classes=2, phases=2)
    strategy = tf.distribute.get_strategy()
    return METHODS[name](config, scenario, source, tmp_path / folder, strategy)

  return make_method


def raw_images(source, label):
  """The raw images of a label, in the source's order."""
  number = (3, 1, 0, 2)[label]
  members = np.flatnonzero(source.train.labels == number)
  return source.train.read(tf.constant(members, tf.int64)).numpy()


def run_untrained(method, phases=PHASES):
  """Remembers phases with networks that have learned nothing."""
  for phase in phases:
    if method.selection == "herding":
      method.classifier = method.build(phase)
    method.remember(phase)


def files_of(method):
  folder = method.workdir / "memory"
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def bytes_on_disk(method):
  return sum(map(len, files_of(method).values()))


def one_epoch(method, phase):
  """All examples of a phase, with what `prepare` makes of them."""
  examples = method.examples(phase)
  batches = examples.training_batches(
    batch_size=100, epochs=range(1), seed=tf.constant([1, 2]), padding=0
  )
  inputs, labels = next(iter(batches))
  return examples.preparation(0)(inputs), labels.numpy()


def assert_own_twins(method, phase, count):
  """Each decoded image is much closer to its twin than to any other."""
  prepared, _ = one_epoch(method, phase)
  with_twin = prepared.has_raw.numpy()
  assert with_twin.sum() == count
  images, raw = (
    part.numpy()[with_twin].astype(int)
    for part in (prepared.images, prepared.raw)
  )
  error = np.abs(images[:, None] - raw[None]).mean(axis=(2, 3, 4))
  own = np.diag(error)
  others = error[~np.eye(len(error), dtype=bool)]
  assert own.max() < 10 < 20 < np.median(others)
  assert (error.argmin(axis=1) == np.arange(len(error))).all()


@pytest.mark.parametrize("name", PEERS)
def test_all_images_are_seen_as_they_are_kept(make, source, name):
  method = make(name)
  run_untrained(method)
  prepared, labels = one_epoch(method, 2)
  assert np.bincount(labels).tolist() == [PER_CLASS] * CLASSES
  assert prepared.raw is None
  kept, kept_labels = method._store.read(2)
  want = lossy_images.encode(
    np.concatenate([raw_images(source, k) for k in range(CLASSES)]),
    name.removesuffix("_replay"),
    60,
  )
  assert kept == want
  assert kept_labels.tolist() == np.repeat(np.arange(4), PER_CLASS).tolist()
  seen = {image.tobytes() for image in prepared.images.numpy()}
  decoded = lossy_images.decode(want)
  for image in decoded:
    assert seen & {image.tobytes(), image[:, ::-1].tobytes()}
  stored = method.stored_bytes(2)
  assert stored["images"] == PER_CLASS * CLASSES
  assert stored["payload"] == sum(map(len, want))
  assert stored["payload"] + stored["index"] == bytes_on_disk(method)
  assert "raw_exemplars" not in stored


def test_the_best_quality_that_fits_is_taken(make):
  sizes = {}
  for quality in (40, 70):
    method = make("webp_replay", f"{quality}", quality=quality)
    run_untrained(method)
    sizes[quality] = bytes_on_disk(method)
  method = make("webp_replay", total_bytes=sizes[70] - 1)
  run_untrained(method)
  assert 40 <= method._quality < 70
  assert sizes[40] <= bytes_on_disk(method) < sizes[70]


@pytest.mark.parametrize("name", PEERS)
def test_star_looks_back_at_new_classes_only(make, name):
  plain, star = make(name, "plain"), make(name, information_back="star")
  run_untrained(plain, range(1))
  run_untrained(star, range(1))
  assert_own_twins(star, 0, 2 * PER_CLASS)
  assert_own_twins(star, 1, PER_CLASS)
  # It keeps nothing more, and sees the same images in the same order.
  assert files_of(star) == files_of(plain)
  assert star.stored_bytes(0) == plain.stored_bytes(0)
  np.testing.assert_array_equal(
    one_epoch(star, 1)[0].images, one_epoch(plain, 1)[0].images
  )


@pytest.mark.parametrize(
  ("name", "selection"), [(PEERS[0], "herding"), (PEERS[1], "random")]
)
def test_exemplars_are_raw_twins_of_old_classes(make, source, name, selection):
  method = make(name, information_back="exemplars", selection=selection)
  run_untrained(method, range(1))
  method.learn(1)
  losses = method.classifier.history.history["ib_loss"]
  assert all(-1 <= loss < 0 for loss in losses)
  assert_own_twins(method, 1, 2 * KEPT + PER_CLASS)
  method.remember(1)
  assert_own_twins(method, 2, 3 * KEPT + PER_CLASS)
  # Exemplars are raw images of their class, each once.
  images, labels = method._exemplars.read(1)
  assert np.bincount(labels).tolist() == [KEPT] * 3
  for label in range(3):
    raw = {image.tobytes() for image in raw_images(source, label)}
    assert len({i.tobytes() for i in images[labels == label]} & raw) == KEPT
  stored = method.stored_bytes(1)
  files = files_of(method)
  assert stored["raw_exemplars"] == sum(
    len(data) for file, data in files.items() if file.startswith("exemplars")
  )
  assert sum(stored.values()) - stored["images"] == sum(
    map(len, files.values())
  )
  assert stored["images"] == 3 * PER_CLASS


class OnDecodedImages(Method):
  """Any classifier on images, which knows nothing of twins."""

  decoded = None

  def examples(self, phase):
    return stream.Examples(self.decoded.labels, self.decoded.read)

  def stored_bytes(self, phase):
    return {}


def test_without_the_option_it_is_plain_training_on_images(make, source):
  plain = make("webp_replay", "plain")
  ordinary = OnDecodedImages(
    plain.config,
    plain.scenario,
    plain.source,
    plain.workdir.with_name("ordinary"),
    plain.strategy,
  )
  raw = np.concatenate([raw_images(source, label) for label in range(2)])
  ordinary.decoded = in_memory(
    lossy_images.decode(lossy_images.encode(raw, "webp", 60)),
    np.repeat([0, 1], PER_CLASS),
  )
  back = make("webp_replay", "back", information_back="star")
  for method in (plain, ordinary, back):
    method.learn(0)
  histories = [
    method.classifier.history.history for method in (plain, ordinary)
  ]
  assert histories[0] == histories[1]
  weights, same, other = (
    method.classifier.get_weights() for method in (plain, ordinary, back)
  )
  for a, b in zip(weights, same, strict=True):
    np.testing.assert_array_equal(a, b)
  assert any(np.any(a != b) for a, b in zip(weights, other, strict=True))


@pytest.mark.parametrize("selection", ["random", "herding"])
def test_a_budget_includes_exemplars(make, selection):
  free = make(
    "webp_replay", "free", information_back="exemplars", selection="random"
  )
  run_untrained(free)
  budget = bytes_on_disk(free)
  method = make(
    "webp_replay",
    information_back="exemplars",
    selection=selection,
    total_bytes=budget,
  )
  run_untrained(method)
  assert method.stored_bytes(2)["raw_exemplars"] > 0
  assert bytes_on_disk(method) <= budget
  if selection == "random":  # Its bytes are known before, to the last one.
    assert method._quality >= 60
    assert method.raw_bytes() == method.stored_bytes(2)["raw_exemplars"]
  else:
    assert method.raw_bytes() >= method.stored_bytes(2)["raw_exemplars"]
  # Without exemplars, as many bytes buy better images.
  plain = make("webp_replay", "plain", total_bytes=budget)
  assert plain._quality > method._quality


def test_a_budget_too_small_for_exemplars_is_refused(make, source):
  one = exemplars.encode(raw_images(source, 0)[0])
  method = make(
    "jpeg_replay", information_back="exemplars", total_bytes=len(one)
  )
  with pytest.raises(UserError, match=f"total_bytes={len(one)} is too small"):
    method.examples(0)


def test_a_phase_killed_while_it_was_remembered(make):
  """Killed after the first file was written, or after both."""
  options = {"information_back": "exemplars", "selection": "herding"}
  method = make("webp_replay", **options)
  method.learn(0)
  method.remember(0)
  want = files_of(method)
  assert set(want) == {"exemplars-000.tfrecord", "webp-000.tfrecord"}
  for lost in ([], ["webp-000.tfrecord"]):
    for name in lost:
      (method.workdir / "memory" / name).unlink()
    again = make("webp_replay", **options)
    again.learn(0)  # It takes up the finished training.
    again.remember(0)
    assert files_of(again) == want
  assert_own_twins(again, 1, 2 * KEPT + PER_CLASS)
