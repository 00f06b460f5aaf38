"""DRR and IB-DRR: everything is remembered, and twins belong together."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_codec import small_vqvae
from tiny_config import tiny_config

from ibdrr_tf.codec import code_tree
from ibdrr_tf.codec.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.bit_swap_model import BitSwapModel
from ibdrr_tf.data.scenario import make_scenario
from ibdrr_tf.data.source import Source, in_memory
from ibdrr_tf.methods import METHODS
from ibdrr_tf.replay.codec import ReplayCodec

CLASSES, PER_CLASS, KEPT = 4, 6, 2


@pytest.fixture(scope="module")
def source():
  generator = np.random.default_rng(0)
  labels = np.tile(np.arange(CLASSES), PER_CLASS)  # Not in runs.
  images = generator.integers(0, 256, (len(labels), 16, 16, 3))
  split = in_memory(images.astype(np.uint8), labels)
  names = tuple(f"class {number}" for number in range(CLASSES))
  return Source("tiny", names, split, split)


@pytest.fixture(scope="module")
def vqvae():
  tf.keras.utils.set_random_seed(0)
  return small_vqvae(64)


@pytest.fixture(scope="module")
def bit_swap(vqvae):
  """A model that has learned nothing, but codes all the same."""
  trees = [
    code_tree.make_tree(book.numpy())
    for quantizer in vqvae.quantizers
    for book in quantizer.codebooks
  ]
  return BitSwapModel(trees, latents=1, width=8, blocks=1, embedding=4)


@pytest.fixture(scope="module")
def coder():
  return BitSwapCodec()


@pytest.fixture
def make(tmp_path, source, vqvae, bit_swap, coder):
  def make_method(name, selection="random", **replay):
    config = tiny_config(name, KEPT)
    config.memory.selection = selection
    config.replay.update(replay)
    scenario = make_scenario((3, 1, 0, 2), classes=0, base_classes=2, phases=2)
    strategy = tf.distribute.get_strategy()
    codec = ReplayCodec(
      folder=tmp_path / "codec",
      vqvae=vqvae,
      vqvae_bytes=1234,
      fit_bit_swap=lambda codes, phase, start: bit_swap,
      coder=coder,
    )
    return METHODS[name](
      config, scenario, source, tmp_path, strategy, codec=codec
    )

  return make_method


def assert_twins_match(method, phase, count):
  """Encodes every twin again: its codes are those of its example."""
  codes = method._codes(phase)
  twins = method.twins(phase, codes.labels)
  with_twin = np.flatnonzero(twins.number >= 0)
  assert len(with_twin) == count
  assert len(set(twins.number[with_twin])) == count
  numbers = tf.constant(twins.number[with_twin])
  top, bottom = method._codec.vqvae.encode(twins.raw.read(numbers))
  np.testing.assert_array_equal(top, codes.top[with_twin])
  np.testing.assert_array_equal(bottom, codes.bottom[with_twin])
  np.testing.assert_array_equal(
    twins.raw.labels[twins.number[with_twin]], codes.labels[with_twin]
  )


def test_drr_remembers_every_image_and_nothing_raw(make, source):
  method = make("drr")
  assert method.twins(0, method._codes(0).labels) is None
  for phase in range(2):
    method.learn(phase)
    method.remember(phase)
  remembered = method._memory.read()
  assert np.bincount(remembered.labels).tolist() == [PER_CLASS] * 3
  # Against the codes of the raw images themselves, class by class.
  for label, number in enumerate((3, 1, 0)):
    members = np.flatnonzero(source.train.labels == number)
    top, _ = method._codec.vqvae.encode(
      source.train.read(tf.constant(members, tf.int64))
    )
    np.testing.assert_array_equal(
      remembered.top[remembered.labels == label], top
    )
  stored = method.stored_bytes(1)
  assert stored["images"] == 3 * PER_CLASS
  assert stored["codec_vqvae"] == 1234
  assert "raw_exemplars" not in stored


@pytest.mark.parametrize("selection", ["random", "herding"])
def test_ib_drr_keeps_raw_twins_of_old_classes(make, selection):
  method = make("ib_drr", selection)
  assert_twins_match(method, 0, 2 * PER_CLASS)
  method.learn(0)
  method.remember(0)
  assert_twins_match(method, 1, 2 * KEPT + PER_CLASS)
  history = method.classifier.history
  method.learn(1)
  assert history is not method.classifier.history
  assert "ib_loss" in method.classifier.history.history
  method.remember(1)
  stored = method.stored_bytes(1)
  files = list((method.workdir / "memory").iterdir())
  assert sum(path.stat().st_size for path in files) == sum(
    stored[name] for name in ("payload", "index", "raw_exemplars")
  )
  # Killed before the phase was written down: it is learned and kept again.
  again = make("ib_drr", selection)
  assert_twins_match(again, 1, 2 * KEPT + PER_CLASS)
  again.restore(1)
  again.remember(1)
  assert again.stored_bytes(1) == stored


def test_herding_looks_at_new_images_once_a_phase(make, monkeypatch):
  method = make("ib_drr", "herding")
  method.classifier = method.build(0)
  seen = []
  features = method.features
  monkeypatch.setattr(
    method, "features", lambda e: seen.append(len(e)) or features(e)
  )
  method.remember(0)
  assert seen == [PER_CLASS] * 2


def test_ib_drr_star_has_twins_of_new_classes_only(make):
  method = make("ib_drr_star")
  method.learn(0)
  method.remember(0)
  assert_twins_match(method, 1, PER_CLASS)
  assert "raw_exemplars" not in method.stored_bytes(0)


def test_views_of_test_images(make):
  """What the codec's view sees is what a raw view of reconstructions sees."""
  method = make("drr", test_view="codec")
  method.learn(0)
  test = method.new_examples(0)
  everything = test.read(tf.range(len(test), dtype=tf.int64))
  logits = method.classifier(method._codec.reconstruct(everything))
  raw = tf.nn.softmax(method.classifier(everything)).numpy()
  coded = tf.nn.softmax(logits).numpy()
  np.testing.assert_array_equal(method.predict(test), coded.argmax(1))
  method.config.replay.test_view = "both"
  np.testing.assert_array_equal(method.predict(test), (raw + coded).argmax(1))
  method.config.replay.test_view = "raw"
  np.testing.assert_array_equal(method.predict(test), raw.argmax(1))


def test_batch_norm_is_adapted_when_a_phase_is_learned_or_restored(make):
  plain = make("ib_drr")
  plain.learn(0)
  before = plain.classifier.get_weights()
  adapted = make("ib_drr", adapt_batch_norm=True)
  adapted.restore(0)
  after = adapted.classifier.get_weights()
  changed = [not np.allclose(a, b) for a, b in zip(before, after, strict=True)]
  assert any(changed) and not all(changed)
