"""Pushes, pops and their inverses, over random tables and messages."""

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec.lossless import message, range_coder
from ibdrr_tf.errors import UserError


def random_lookup(generator, tables=5, most=40):
  """Tables of random length and sharpness, every symbol possible."""
  cumulative = []
  for _ in range(tables):
    count = int(generator.integers(2, most))
    weight = generator.dirichlet(
      np.full(count, generator.choice([0.05, 1, 20]))
    )
    free = (1 << 16) - count
    inner = np.floor(np.cumsum(weight)[:-1] * free) + np.arange(1, count)
    cumulative.append([0, *inner.astype(int), 1 << 16])
  return range_coder.make_lookup(cumulative), cumulative


def random_symbols(generator, cumulative, shape):
  index = generator.integers(0, len(cumulative), shape)
  bits = generator.integers(0, 1 << 16, shape)
  value = np.array(
    [
      np.searchsorted(cumulative[i], b, side="right") - 1
      for i, b in zip(index.ravel(), bits.ravel(), strict=True)
    ]
  ).reshape(shape)
  return tf.constant(index, tf.int32), tf.constant(value, tf.int32)


def random_messages(generator, count, length):
  return tf.constant([generator.bytes(length) for _ in range(count)])


def pop(messages, index, lookup):
  value = range_coder.decode(messages, index, lookup)
  strings = range_coder.encode(index, value, lookup)
  return message.finish_pop(messages, strings), value


def unpop(messages, index, value, lookup):
  return message.unpop(messages, range_coder.encode(index, value, lookup))


@pytest.mark.parametrize("seed", range(40))
def test_symbols_come_back_from_the_coder(seed):
  generator = np.random.default_rng(seed)
  lookup, cumulative = random_lookup(generator)
  shape = generator.integers(1, 60, 2)
  index, value = random_symbols(generator, cumulative, shape)
  strings = range_coder.encode(index, value, lookup)
  np.testing.assert_array_equal(
    range_coder.decode(strings, index, lookup), value
  )
  # In pieces, through one handle, it is the same.
  handle, parts = range_coder.start_decoding(strings, lookup), []
  for part in (
    tf.split(index, [1, shape[1] - 1], axis=1) if shape[1] > 1 else [index]
  ):
    handle, symbols = range_coder.decode_next(handle, part)
    parts.append(symbols)
  np.testing.assert_array_equal(tf.concat(parts, axis=1), value)


def test_length_is_the_information_and_next_to_nothing_more():
  generator = np.random.default_rng(0)
  lookup, cumulative = random_lookup(generator)
  index, value = random_symbols(generator, cumulative, (3, 5000))
  strings = range_coder.encode(index, value, lookup).numpy()
  for row in range(3):
    ideal = -sum(
      np.log2(np.diff(cumulative[i])[v] / (1 << 16))
      for i, v in zip(index[row].numpy(), value[row].numpy(), strict=True)
    )
    assert ideal / 8 - 1 < len(strings[row]) < 1.0005 * ideal / 8 + 3


@pytest.mark.parametrize("length", [0, 1, 2, 300, 0x7FFF, 0x8000, 70_000])
def test_pushed_strings_are_pulled_again(length):
  generator = np.random.default_rng(length)
  below = random_messages(generator, 2, 7)
  strings = tf.constant([generator.bytes(length), b"\0" * (length // 2)])
  got, rest = message.pull(message.push(below, strings))
  assert got.numpy().tolist() == strings.numpy().tolist()
  assert rest.numpy().tolist() == below.numpy().tolist()


@pytest.mark.parametrize("block", range(20))
def test_popping_and_putting_back_restores_every_byte(block):
  """1,000 pops: 20 blocks of 50 messages, each with other tables."""
  generator = np.random.default_rng(1000 + block)
  lookup, cumulative = random_lookup(generator)
  count = int(generator.integers(1, 400))
  index = tf.constant(
    generator.integers(0, len(cumulative), (50, count)), tf.int32
  )
  messages = random_messages(generator, 50, 2 * count + 16)
  rest, value = tf.function(pop)(messages, index, lookup)
  back = tf.function(unpop)(rest, index, value, lookup)
  assert back.numpy().tolist() == messages.numpy().tolist()


@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\0\xff", b"\xff\0\0\0"])
def test_messages_of_extreme_bytes_are_restored(fill):
  generator = np.random.default_rng(5)
  lookup, cumulative = random_lookup(generator)
  for count in (1, 2, 3, 10, 100):
    index = tf.constant(
      generator.integers(0, len(cumulative), (1, count)), tf.int32
    )
    messages = tf.constant([(fill * 400)[: 2 * count + 20]])
    rest, value = pop(messages, index, lookup)
    assert unpop(rest, index, value, lookup).numpy() == messages.numpy()


def test_literal_and_long_differences_are_restored():
  """Strings that do not come from the coder force the rare cases."""
  for string, front in (
    (b"", b"\0\0"),
    (b"abc", b"abd\0\0"),
    (b"abc", b"zzzzz"),
    (b"a\xff\xff\xff\xff\xff\xff", b"b\0\0\0\0\0\0\0\1"),
    (b"abcdefgh", b"abcdefgh\xff\xff"),
    (b"abcdefgh", b"abcdeggh\xff\xff"),
    (b"abcdefgh", b"zbcdefgh\xff\xff"),
  ):
    messages = tf.constant([front + b"below", front])
    strings = tf.constant([string, string])
    rest = message.finish_pop(messages, strings)
    back = message.unpop(rest, strings).numpy().tolist()
    assert back == [front + b"below", front]


def test_a_pop_costs_less_than_five_bytes():
  generator = np.random.default_rng(9)
  lookup, cumulative = random_lookup(generator)
  index = tf.constant(
    generator.integers(0, len(cumulative), (200, 300)), tf.int32
  )
  messages = random_messages(generator, 200, 700)
  rest, value = pop(messages, index, lookup)
  taken = 700 - tf.strings.length(rest).numpy()
  ideal = np.array(
    [
      -sum(
        np.log2(np.diff(cumulative[i])[v] / (1 << 16))
        for i, v in zip(*row, strict=True)
      )
      for row in zip(index.numpy(), value.numpy(), strict=True)
    ]
  )
  assert (ideal / 8 - taken).mean() < 3


def test_too_short_messages_are_refused():
  lookup = range_coder.make_lookup([np.linspace(0, 1 << 16, 257).astype(int)])
  index = tf.zeros([1, 20], tf.int32)
  with pytest.raises(tf.errors.InvalidArgumentError, match="too short"):
    pop(tf.constant([b"\x37" * 10]), index, lookup)
  with pytest.raises(tf.errors.InvalidArgumentError, match="too short"):
    message.pull(tf.constant([b"\x00\x09abc"]))


def test_seeds_are_prefixes_of_longer_ones_and_look_random():
  long = message.seed_bytes(tf.constant(20_000)).numpy()
  assert message.seed_bytes(tf.constant(100)).numpy() == long[:100]
  counts = np.bincount(np.frombuffer(long, np.uint8), minlength=256)
  # Chi-square with 255 degrees of freedom: mean 255, deviation 22.6.
  chi_square = ((counts - 20_000 / 256) ** 2 / (20_000 / 256)).sum()
  assert 255 - 5 * 22.6 < chi_square < 255 + 5 * 22.6


@pytest.mark.parametrize(
  "table", [[0, 5, 5, 1 << 16], [1, 1 << 16], [0, 9], [0, 70_000, 1 << 16]]
)
def test_tables_that_would_be_undefined_are_refused(table):
  with pytest.raises(UserError, match="table 1"):
    range_coder.make_lookup([[0, 1 << 16], table])
