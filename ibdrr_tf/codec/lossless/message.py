"""Byte strings as stacks, on which bits-back coding pushes and pops.

Bits-back coding (section 3.2 of the paper) *pops* latents from what has been
written before, as if it were random bits, and *pushes* symbols on top. That
needs a stack, and a range coder writes a queue. Here a message is a byte string
whose top is its front, and two pairs of exact inverses work on it:

    push(S): put a coded string on top.           pull: take it off again.
    pop:     read symbols from the bytes on top.  unpop(S): put them back.

A pop decodes symbols from the front of the message. Encoding the same symbols
gives a string S, which lies in the same last interval of the coder as the
message's front, so that the two differ by a small number d only, counted in
units of the second byte after S:

    front = S · 256² + d,   |front| = |S| + 2,   -2^16 < d < 2^24

The front is replaced by d, written in three bytes. `unpop` encodes the symbols
again and adds d. Where a carry would run further than the last bytes, which is
rare, the front is kept literally and marked.

All functions take a vector of independent messages, string [m], and work
inside graphs.
"""

import tensorflow as tf

from ibdrr_tf.codec import checks

__all__ = [
  "MOST_SEED",
  "finish_pop",
  "from_number",
  "join_bytes",
  "pull",
  "push",
  "seed_bytes",
  "to_number",
  "unpop",
]

# Bytes of the longest seed.
MOST_SEED = 1 << 16
# Bytes that follow S in the front.
_EXTRA = 2
# Bytes at the front's end that are compared as a number.
_WINDOW = 6
_OFFSET = 1 << 16
# First bytes of a difference that is not three plain bytes long.
_LONG, _LITERAL = 0xFE, 0xFF
_TOO_SHORT = (
  "a message is too short: it is damaged, or holds fewer bits than a pop needs"
)
# The first bit of a length of four bytes instead of two.
_LONG_LENGTH = 1 << 31


def push(messages: tf.Tensor, strings: tf.Tensor) -> tf.Tensor:
  """Puts a string on top of each message, with its length before it."""
  length = tf.cast(tf.strings.length(strings), tf.int64)
  prefix = tf.where(
    length < 1 << 15,
    from_number(length, 2),
    from_number(length + _LONG_LENGTH, 4),
  )
  return tf.strings.join([prefix, strings, messages])


def pull(messages: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Takes off what `push` has put on: (strings, messages below).

  Raises:
    tf.errors.InvalidArgumentError: if a length is beyond the message's end.
  """
  head = tf.strings.join([messages, _zeros(4)])
  short = to_number(tf.strings.substr(head, 0, 2), 2)
  long = to_number(tf.strings.substr(head, 0, 4), 4) - _LONG_LENGTH
  is_long = long >= 0
  start = tf.where(is_long, 4, 2)
  # A length has up to 31 bits, and its end may have one more.
  end = tf.cast(start, tf.int64) + tf.where(is_long, long, short)
  messages, start, end = _long_enough(messages, start, end)
  return (
    tf.strings.substr(messages, start, end - start),
    _from(messages, end),
  )


def finish_pop(messages: tf.Tensor, strings: tf.Tensor) -> tf.Tensor:
  """Ends a pop: replaces the bytes that were read by what they hold besides.

  Args:
    messages: from whose front symbols have been decoded.
    strings: the same symbols, encoded again.

  Returns:
    The messages without the information of the symbols.

  Raises:
    tf.errors.InvalidArgumentError: if a message is shorter than its string and
      two bytes: it could not be restored.
  """
  extended = tf.strings.join([strings, _zeros(_EXTRA)])
  size = tf.strings.length(extended)
  front = _between(messages, tf.zeros_like(size), size)
  number = _last_bytes(front) - _last_bytes(extended) + _OFFSET
  # A carry that runs past the window leaves different bytes before it.
  plain = tf.equal(_all_but_last(front), _all_but_last(extended))
  plain &= (number >= 0) & (number < 1 << 32)
  short = plain & (number < _LONG << 16)
  kept = tf.where(
    short,
    from_number(number, 3),
    tf.where(
      plain,
      tf.strings.join([_byte(_LONG), from_number(number, 4)]),
      tf.strings.join([_byte(_LITERAL), front]),
    ),
  )
  return tf.strings.join([kept, _from(messages, size)])


def unpop(messages: tf.Tensor, strings: tf.Tensor) -> tf.Tensor:
  """Puts symbols back that were popped: the inverse of `finish_pop`.

  Args:
    messages: what `finish_pop` left.
    strings: the symbols, encoded.

  Raises:
    tf.errors.InvalidArgumentError: if there is less than `finish_pop` leaves.
  """
  extended = tf.strings.join([strings, _zeros(_EXTRA)])
  size = tf.strings.length(extended)
  head = tf.strings.join([messages, _zeros(5)])
  first = to_number(tf.strings.substr(head, 0, 1), 1)
  short = to_number(tf.strings.substr(head, 0, 3), 3)
  long = to_number(tf.strings.substr(head, 1, 4), 4)
  is_literal, is_long = first == _LITERAL, first == _LONG
  number = tf.where(is_long, long, short) - _OFFSET
  end = tf.strings.substr(
    from_number(_last_bytes(extended) + number, _WINDOW),
    tf.maximum(_WINDOW - size, 0),
    tf.minimum(size, _WINDOW),
  )
  front = tf.strings.join([_all_but_last(extended), end])
  # A literal front is there already, behind its mark.
  front = tf.where(is_literal, tf.zeros_like(front), front)
  start = tf.where(is_literal, 1, tf.where(is_long, 5, 3))
  return tf.strings.join([front, _from(messages, start)])


def seed_bytes(count: tf.Tensor) -> tf.Tensor:
  """The pseudo-random bytes that lie at the bottom of every message.

  The first pop of a chain needs something to read. These bytes are the same for
  everybody, so none of them is stored; a decoder that ends with them has also
  shown that nothing went wrong on the way.

  Args:
    count: int32 [], how many.

  Returns:
    string []. A shorter seed is the beginning of a longer one.
  """
  # A multiplicative hash of the position: one vectorised expression of wrapping
  # 64-bit integers, whose highest byte is random enough to stand for a message.
  state = tf.cast(tf.range(1, count + 1), tf.uint64)
  state *= tf.constant(6364136223846793005, tf.uint64)
  shifted = tf.bitwise.right_shift(state, tf.constant(29, tf.uint64))
  state = tf.bitwise.bitwise_xor(state, shifted)
  state *= tf.constant(1442695040888963407, tf.uint64)
  value = tf.bitwise.right_shift(state, tf.constant(56, tf.uint64))
  return join_bytes(value)


def _all_bytes() -> tf.Tensor:
  return tf.constant([bytes([value]) for value in range(256)])


def _byte(value: int) -> tf.Tensor:
  return tf.constant(bytes([value]))


def _zeros(count: int) -> tf.Tensor:
  return tf.constant(b"\0" * count)


def from_number(number: tf.Tensor, width: int) -> tf.Tensor:
  """Writes int64 [m] as big-endian bytes, the last `width` of them."""
  shifts = tf.range(8 * (width - 1), -1, -8, dtype=tf.int64)
  digits = tf.bitwise.right_shift(number[:, tf.newaxis], shifts) & 0xFF
  return join_bytes(digits)


def join_bytes(values: tf.Tensor) -> tf.Tensor:
  """Bytes as integers 0 .. 255, [..., width], to strings [...]."""
  digits = tf.gather(_all_bytes(), tf.cast(values, tf.int32))
  return tf.strings.reduce_join(digits, axis=-1)


def to_number(strings: tf.Tensor, width: int) -> tf.Tensor:
  """Reads strings of `width` big-endian bytes each: int64 [m]."""
  digits = tf.cast(tf.io.decode_raw(strings, tf.uint8), tf.int64)
  digits = tf.reshape(digits, [-1, width])  # Of no strings, too.
  digits = tf.ensure_shape(digits, [strings.shape[0], width])
  shifts = tf.range(8 * (width - 1), -1, -8, dtype=tf.int64)
  return tf.reduce_sum(tf.bitwise.left_shift(digits, shifts), axis=1)


def _last_bytes(strings: tf.Tensor) -> tf.Tensor:
  """The number in the last bytes, as if zeros stood before: int64 [m]."""
  padded = tf.strings.join([_zeros(_WINDOW), strings])
  return to_number(tf.strings.substr(padded, -_WINDOW, _WINDOW), _WINDOW)


def _all_but_last(strings: tf.Tensor) -> tf.Tensor:
  length = tf.maximum(tf.strings.length(strings) - _WINDOW, 0)
  return tf.strings.substr(strings, tf.zeros_like(length), length)


def _between(
  strings: tf.Tensor, start: tf.Tensor, length: tf.Tensor
) -> tf.Tensor:
  """Cuts out bytes, all of which must be there."""
  strings, start, end = _long_enough(strings, start, start + length)
  return tf.strings.substr(strings, start, end - start)


def _from(strings: tf.Tensor, start: tf.Tensor) -> tf.Tensor:
  """What follows the first bytes, all of which must be there."""
  strings, start, _ = _long_enough(strings, start, start)
  return tf.strings.substr(strings, start, tf.strings.length(strings) - start)


def _long_enough(
  strings: tf.Tensor, start: tf.Tensor, end: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Strings that do not end before `end`; start and end as int32."""
  size = tf.cast(tf.strings.length(strings), tf.int64)
  strings, start, end = checks.guarded(
    (strings, start, end), [(tf.cast(end, tf.int64) <= size, _TOO_SHORT)]
  )
  return strings, tf.cast(start, tf.int32), tf.cast(end, tf.int32)
