"""Codes become the images that the classifier sees, twins beside them."""

import numpy as np
import pytest
from tiny_codec import small_vqvae

from ibdrr_tf import choices
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import in_memory, take
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import feeds
from ibdrr_tf.replay.codec import encode_examples

COUNT, SIZE, PADDING = 11, (16, 16), 2


@pytest.fixture(scope="module")
def vqvae():
  set_random_seed(0)
  return small_vqvae()


@pytest.fixture(scope="module")
def raw():
  generator = np.random.default_rng(0)
  images = generator.integers(0, 256, (COUNT, *SIZE, 3)).astype(np.uint8)
  return images, in_memory(images, np.arange(COUNT))


@pytest.fixture(scope="module")
def codes(vqvae, raw):
  return encode_examples(vqvae, raw[1])


def one_epoch(examples, epoch=0, batch_size=4):
  """All of an epoch, prepared, ordered by label."""
  batches = examples.training_batches(
    batch_size=batch_size,
    epochs=range(epoch, epoch + 1),
    seed=stream.fold_in(5),
    augment=Augmentation(PADDING),
  )
  prepare = examples.preparation(Augmentation(PADDING))
  seen = [(prepare(inputs), inputs, labels) for inputs, labels in batches]
  labels = np.concatenate([labels for *_, labels in seen])
  order = np.argsort(labels)
  np.testing.assert_array_equal(labels[order], np.arange(COUNT))

  def join(take):
    return np.concatenate([take(*part[:2]) for part in seen])[order]

  return join


def crop(image, drawn):
  """Padding, crop and flip in NumPy."""
  widths = [(PADDING, PADDING), (PADDING, PADDING), (0, 0)]
  padded = np.pad(image, widths, mode="reflect")
  row, column, flip = drawn[1:4]
  cut = padded[row : row + SIZE[0], column : column + SIZE[1]]
  return cut[:, ::-1] if flip else cut


@pytest.mark.parametrize("cache", choices.CACHES)
def test_images_are_reconstructions_under_their_augmentation(
  vqvae, raw, codes, cache
):
  examples = feeds.CodeFeed(codes, vqvae, SIZE, cache=cache)
  join = one_epoch(examples, epoch=3)
  images = join(lambda prepared, _: prepared.images)
  drawn = join(lambda _, inputs: inputs["drawn"])
  whole = vqvae.decode(*vqvae.encode(raw[0])).numpy()
  np.testing.assert_array_equal(examples.read_all(), whole)
  for number in range(COUNT):
    np.testing.assert_array_equal(
      images[number], crop(whole[number], drawn[number])
    )
  assert len({tuple(d) for d in drawn}) > COUNT // 2


def test_twins_get_the_same_augmentation(vqvae, raw, codes):
  number = np.full(COUNT, -1)
  number[[2, 5, 9]] = 0, 2, 1
  twins = feeds.Twins(take(raw[1], np.array([2, 9, 5])), number)
  examples = feeds.CodeFeed(codes, vqvae, SIZE, twins=twins)
  join = one_epoch(examples)
  has_raw = join(lambda prepared, _: prepared.has_raw)
  assert np.flatnonzero(has_raw).tolist() == [2, 5, 9]
  images = join(lambda prepared, _: prepared.raw)
  drawn = join(lambda _, inputs: inputs["drawn"])
  for index in range(COUNT):
    want = raw[0][index] if has_raw[index] else np.zeros_like(raw[0][0])
    np.testing.assert_array_equal(images[index], crop(want, drawn[index]))


def test_a_share_of_twins_takes_the_place_of_reconstructions(vqvae, raw, codes):
  number = np.where(np.arange(COUNT) < 8, np.arange(COUNT), -1)
  twins = feeds.Twins(raw[1], number)

  def replaced(share):
    examples = feeds.CodeFeed(codes, vqvae, SIZE, twins=twins, raw_share=share)
    join = one_epoch(examples)
    images = join(lambda prepared, _: prepared.images)
    raw_images = join(lambda prepared, _: prepared.raw)
    has_raw = join(lambda prepared, _: prepared.has_raw)
    is_raw = (images == raw_images).all(axis=(1, 2, 3))
    # Whoever is raw himself has no twin to learn from.
    assert not (is_raw & has_raw).any()
    return is_raw

  assert not replaced(0.0).any()
  assert replaced(1.0).tolist() == [True] * 8 + [False] * 3
  assert 0 < replaced(0.5).sum() < 8


def test_images_decoded_before_take_the_way_of_codes(vqvae, raw, codes):
  """Against NumPy, and against the batches of codes with the same twins."""
  whole = vqvae.decode(*vqvae.encode(raw[0])).numpy()
  options = {
    "twins": feeds.Twins(raw[1], np.where(np.arange(COUNT) < 8, 1, -1)),
    "raw_share": 0.5,
  }
  images = feeds.ImageFeed(whole, codes.labels)
  join = one_epoch(images)
  seen = join(lambda prepared, _: prepared.images)
  drawn = join(lambda _, inputs: inputs["drawn"])
  for number in range(COUNT):
    np.testing.assert_array_equal(
      seen[number], crop(whole[number], drawn[number])
    )
  images = feeds.ImageFeed(whole, codes.labels, **options)
  coded = feeds.CodeFeed(codes, vqvae, SIZE, **options)
  joins = one_epoch(images), one_epoch(coded)
  for field in feeds.Prepared._fields:
    got, want = (
      join(lambda prepared, _, f=field: getattr(prepared, f)) for join in joins
    )
    np.testing.assert_array_equal(got, want)


def test_epochs_differ_and_repeat(vqvae, codes):
  examples = feeds.CodeFeed(codes, vqvae, SIZE, cache="codes")

  def order(epoch):
    batches = examples.training_batches(
      batch_size=4,
      epochs=range(epoch, epoch + 1),
      seed=[1, 2],
      augment=Augmentation(0),
    )
    return np.concatenate([labels for _, labels in batches]).tolist()

  assert order(0) == order(0) != order(1)
  assert examples.steps(4) == 3
