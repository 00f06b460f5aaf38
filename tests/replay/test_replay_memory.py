"""A memory for one's own model: batches out of bit-strings, over time."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_codec import write_codec

from ibdrr_tf.codec.load import load_codec
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.replay_memory import ReplayMemory


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
  return write_codec(tmp_path_factory.mktemp("codec") / "c", 0)


def noise(count, seed=0):
  generator = np.random.default_rng(seed)
  return generator.integers(0, 256, (count, 16, 16, 3)).astype(np.uint8)


@pytest.fixture(scope="module")
def filled(codec, tmp_path_factory):
  """A memory of two additions, and what the codec makes of all images."""
  path = tmp_path_factory.mktemp("memory") / "m"
  loaded = load_codec(str(codec))
  memory = ReplayMemory(path, loaded)
  first, second = noise(7), noise(5, 1)
  memory.add(first, [3] * 7)
  before = {file.name: file.read_bytes() for file in path.glob("*.tfrecord")}
  memory.add(second, [0, 1, 2, 3, 4])
  images = np.concatenate([first, second])
  return path, before, loaded.decompress(loaded.compress(images)).numpy()


LABELS = [3] * 7 + [0, 1, 2, 3, 4]


def test_images_come_back_as_the_codec_leaves_them(filled, codec):
  path, _, want = filled
  memory = ReplayMemory(path, str(codec))
  images, labels = memory.images()
  np.testing.assert_array_equal(images, want)
  assert labels.tolist() == LABELS and len(memory) == 12


def test_adding_rewrites_nothing_and_every_byte_is_in_the_ledger(filled, codec):
  path, before, _ = filled
  for name, data in before.items():
    assert (path / name).read_bytes() == data
  ledger = ReplayMemory(path, str(codec)).ledger()
  sizes = [file.stat().st_size for file in path.rglob("*.*") if file.is_file()]
  lock = (path / ".lock").stat().st_size
  assert ledger.total == sum(sizes) - lock and ledger.images == 12


def test_a_data_set_gives_every_image_once_in_another_order(filled, codec):
  path, _, want = filled
  dataset = ReplayMemory(path, str(codec)).dataset(batch_size=5)
  passes = []
  for _ in range(2):
    batches = list(dataset.as_numpy_iterator())
    assert [len(images) for images, _ in batches] == [5, 5, 2]
    images = np.concatenate([images for images, _ in batches])
    labels = np.concatenate([labels for _, labels in batches])
    got = sorted(zip(map(bytes, images), labels, strict=True))
    assert got == sorted(zip(map(bytes, want), LABELS, strict=True))
    passes.append(images)
  assert not np.array_equal(*passes)


def test_augmented_images_are_crops_and_flips(filled, codec):
  path, _, want = filled
  memory = ReplayMemory(path, str(codec), padding=1)
  dataset = memory.dataset(12, augment=True, shuffle=False)
  widths = [(0, 0), (1, 1), (1, 1), (0, 0)]
  padded = np.pad(want, widths, mode="reflect")
  first, second = (next(iter(dataset))[0].numpy() for _ in range(2))
  assert not np.array_equal(first, second)
  for image, source in zip(first, padded, strict=True):
    crops = [source[y : y + 16, x : x + 16] for y in range(3) for x in range(3)]
    assert any(
      np.array_equal(image, crop) or np.array_equal(image, crop[:, ::-1])
      for crop in crops
    )


def test_any_keras_model_learns_from_it(filled, codec):
  path, _, _ = filled
  model = tf.keras.Sequential(
    [
      tf.keras.layers.Rescaling(1 / 255, input_shape=(16, 16, 3)),
      tf.keras.layers.Flatten(),
      tf.keras.layers.Dense(5),
    ]
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  model.compile("adam", loss)
  dataset = ReplayMemory(path, str(codec)).dataset(batch_size=4, augment=True)
  history = model.fit(dataset, epochs=2, verbose=0).history
  assert np.isfinite(history["loss"]).all()


def test_a_copy_reads_the_same_without_the_codec(filled, tmp_path):
  path, _, want = filled
  shutil.copytree(path, tmp_path / "copy")
  memory = ReplayMemory(tmp_path / "copy", tmp_path / "copy/codec")
  np.testing.assert_array_equal(memory.images()[0], want)


def test_class_names_only_grow(codec, tmp_path):
  memory = ReplayMemory(tmp_path / "m", str(codec))
  memory.add(noise(2), ["dog", "cat"])
  memory.add(noise(2, 1), ["ant", "dog"])
  assert memory.classes == ("cat", "dog", "ant")
  assert memory.labels.tolist() == [1, 0, 2, 1]
  with pytest.raises(UserError, match="names, not numbers"):
    memory.add(noise(1), [0])


@pytest.mark.parametrize(
  ("images", "labels", "part"),
  [
    (noise(2) / 255.0, [0, 1], "float64"),
    (noise(2)[0], [0], r"\[16, 16, 3\]"),
    (noise(2), [0], "2 images and 1 labels"),
    (noise(2)[:, :8], [0, 1], r"\[8, 16, 3\]"),
    (noise(1), ["cat"], "numbers, not names"),
    (noise(0), [], "images is empty"),
    (noise(2), np.eye(2, dtype=int), r"int64 \[2, 2\]"),
    (noise(1), [0.5], "float64"),
    (noise(1), [2**40], "2147483647"),
    (noise(1), [-1], "from 0"),
  ],
)
def test_mistakes_get_a_sentence(filled, codec, images, labels, part):
  memory = ReplayMemory(filled[0], str(codec))
  with pytest.raises(UserError, match=part):
    memory.add(images, labels)
  assert len(memory) == 12


def test_two_writers_see_each_other(codec, tmp_path):
  """A class that another process has added keeps its number."""
  one, two = (ReplayMemory(tmp_path / "m", str(codec)) for _ in range(2))
  one.add(noise(2), ["cat"] * 2)
  two.add(noise(3, 1), ["dog"] * 3)
  memory = ReplayMemory(tmp_path / "m")
  assert memory.classes == ("cat", "dog")
  assert memory.labels.tolist() == [0, 0, 1, 1, 1]
  with pytest.raises(UserError, match=r"\[8, 16, 3\]"):
    ReplayMemory(tmp_path / "m").add(noise(1)[:, :8], ["cat"])


def test_what_no_data_set_can_be_made_of_gets_a_sentence(
  filled, codec, tmp_path
):
  with pytest.raises(UserError, match="batch_size is 0"):
    ReplayMemory(filled[0]).dataset(0)
  with pytest.raises(UserError, match="is empty"):
    ReplayMemory(tmp_path / "new", str(codec)).dataset(4)


def test_a_memory_is_opened_without_naming_its_codec(filled):
  path, _, want = filled
  np.testing.assert_array_equal(ReplayMemory(path).images()[0], want)


def test_another_codec_is_refused(filled, tmp_path):
  other = write_codec(tmp_path / "other", 1)
  with pytest.raises(UserError, match="another codec"):
    ReplayMemory(filled[0], str(other))
