"""Chains: messages with a header that says what they are, and a checksum.

    version u8 | fingerprint of the model, 8 bytes | number of the chain u32
    | images u32 | height u16 | width u16 | planes u8 | images in a group u16
    | bytes of the seed u24 | checksum, 8 bytes | message

Numbers are big-endian. The checksum (FarmHash64, which TensorFlow has in
graphs) covers everything else. A chain can be decoded alone; one of another
model, of a newer format, cut off or damaged in any byte gives an error, never
wrong codes.
"""

from typing import NamedTuple

import tensorflow as tf

from ibdrr_tf.codec import checks
from ibdrr_tf.codec.lossless import message
from ibdrr_tf.codec.lossless.message import from_number, to_number

__all__ = [
  "HEADER_BYTES",
  "Opened",
  "declared_images",
  "ending_with_seed",
  "open_chains",
  "seal",
]

VERSION = 1
_FIELDS = (("version", 1), ("fingerprint", 8), ("number", 4), ("images", 4))
_FIELDS += (("height", 2), ("width", 2), ("planes", 1), ("group", 2))
_FIELDS += (("seed", 3),)
_CHECKSUM = 8
_FIELD_BYTES = sum(width for _, width in _FIELDS)
HEADER_BYTES = _FIELD_BYTES + _CHECKSUM


class Opened(NamedTuple):
  """Chains without their headers.

  Attributes:
    messages: string [chains].
    images: int32 [chains], in each.
    grid: int32 [chains, 2], height and width of the planes.
    group: int32 [chains], images in a group.
    seed: int32 [chains], bytes of the seed at the bottom.
    model: int32 [chains], which of the known models wrote it.
  """

  messages: tf.Tensor
  images: tf.Tensor
  grid: tf.Tensor
  group: tf.Tensor
  seed: tf.Tensor
  model: tf.Tensor


def declared_images(string: bytes) -> int:
  """Images that the header of a chain declares, which is not checked here.

  Raises:
    IndexError: if it is shorter than a header.
  """
  if len(string) < HEADER_BYTES:
    raise IndexError(len(string))
  start = 0
  for name, width in _FIELDS:
    if name == "images":
      break
    start += width
  return int.from_bytes(string[start : start + width], "big")


def seal(
  messages: tf.Tensor,
  seed: tf.Tensor,
  shape: tf.Tensor,
  group: tf.Tensor,
  first: tf.Tensor,
  fingerprint: tf.Tensor,
) -> tf.Tensor:
  """Puts headers before messages.

  Args:
    messages: string [chains].
    seed: int32 [chains], bytes of the seed at the bottom of each.
    shape: int32 [4], images, height, width and planes of every chain.
    group: int32 [], images in a group.
    first: number of the first of these chains.
    fingerprint: string [], eight bytes.

  Returns:
    string [chains].
  """
  chains = tf.shape(messages)[0]
  images, height, width, planes = tf.unstack(tf.cast(shape, tf.int64))
  numbers = {
    "version": tf.fill([chains], tf.constant(VERSION, tf.int64)),
    "number": tf.cast(first + tf.range(chains), tf.int64),
    "images": tf.fill([chains], images),
    "height": tf.fill([chains], height),
    "width": tf.fill([chains], width),
    "planes": tf.fill([chains], planes),
    "group": tf.fill([chains], tf.cast(group, tf.int64)),
    "seed": tf.cast(seed, tf.int64),
  }
  fields = [
    tf.fill([chains], fingerprint)
    if name == "fingerprint"
    else from_number(numbers[name], width)
    for name, width in _FIELDS
  ]
  header = tf.strings.join(fields)
  return tf.strings.join([header, _checksum(header, messages), messages])


def open_chains(
  chains: tf.Tensor, planes: int, fingerprints: tf.Tensor
) -> Opened:
  """Checks chains and takes their headers off.

  Args:
    chains: string [chains], neighbours in order.
    planes: that the models have.
    fingerprints: string [models], of the models that can be read.

  Raises:
    tf.errors.InvalidArgumentError: with a sentence that says what is wrong.
  """
  chains = checks.guarded(
    chains,
    [
      (
        tf.strings.length(chains) >= HEADER_BYTES,
        "a chain is cut off: it is shorter than its header",
      )
    ],
  )
  header = tf.strings.substr(chains, 0, _FIELD_BYTES)
  fields, start = {}, 0
  for name, width in _FIELDS:
    fields[name] = tf.strings.substr(header, start, width)
    start += width
  numbers = {
    name: to_number(fields[name], width)
    for name, width in _FIELDS
    if name != "fingerprint"
  }
  stored = tf.strings.substr(chains, _FIELD_BYTES, _CHECKSUM)
  size = tf.strings.length(chains) - HEADER_BYTES
  messages = tf.strings.substr(
    chains, tf.fill(tf.shape(size), HEADER_BYTES), size
  )
  is_of = tf.equal(fields["fingerprint"][:, tf.newaxis], fingerprints)
  opened = Opened(
    messages,
    tf.cast(numbers["images"], tf.int32),
    tf.cast(tf.stack([numbers["height"], numbers["width"]], 1), tf.int32),
    tf.cast(numbers["group"], tf.int32),
    tf.cast(numbers["seed"], tf.int32),
    tf.argmax(is_of, axis=1, output_type=tf.int32),
  )
  return checks.guarded(
    opened, _conditions(numbers, is_of, stored, header, messages, planes)
  )


def ending_with_seed(
  planes: tf.Tensor, left: tf.Tensor, seed: tf.Tensor
) -> tf.Tensor:
  """Gives decoded planes if their messages end with the seed they began with.

  Args:
    planes: what was decoded.
    left: string [chains], what decoding left.
    seed: int32 [chains], how many bytes of the seed there should be.
  """
  whole = message.seed_bytes(tf.reduce_max(seed))
  want = tf.strings.substr(
    tf.repeat(whole, tf.shape(seed)[0]), tf.zeros_like(seed), seed
  )
  return checks.guarded(
    planes,
    [
      (
        tf.equal(left, want),
        "a chain was decoded with other networks than it was encoded with",
      )
    ],
  )


def _conditions(numbers, is_of, stored, header, messages, planes):
  """In the order in which a user wants to know."""
  # As float64, because 64 bits might not hold the product of forged numbers.
  sizes = [numbers[name] for name in ("images", "height", "width", "planes")]
  size = tf.reduce_prod(tf.cast(sizes, tf.float64), axis=0)
  return (
    (
      numbers["version"] <= VERSION,
      "a chain has a newer format than this program reads: update ibdrr_tf",
    ),
    (
      tf.equal(stored, _checksum(header, messages)),
      "a chain is damaged: its checksum does not match; restore it from a copy",
    ),
    (
      tf.reduce_any(is_of, axis=1),
      "a chain was written with another model: give the codec that wrote it",
    ),
    (
      tf.equal(numbers["planes"], planes),
      "a chain has another depth than the model: give the codec that wrote it",
    ),
    (
      (size > 0)
      & (size < 1 << 31)
      & (numbers["group"] > 0)
      & (numbers["seed"] <= message.MOST_SEED),
      "a chain declares an impossible number of images: it is damaged or "
      "forged; restore it from a copy",
    ),
    (
      tf.equal(numbers["height"][1:], numbers["height"][:-1])
      & tf.equal(numbers["width"][1:], numbers["width"][:-1]),
      "a chain has another image size than the last: chains are mixed up",
    ),
    (
      tf.equal(numbers["number"][1:], numbers["number"][:-1] + 1),
      "a chain does not follow the last: chains are mixed up or missing",
    ),
  )


def _checksum(header: tf.Tensor, messages: tf.Tensor) -> tf.Tensor:
  """FarmHash64 of header and message, string [chains] of eight bytes."""
  digits = tf.fingerprint(tf.strings.join([header, messages]))
  return message.join_bytes(digits)
