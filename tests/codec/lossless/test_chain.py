"""Headers that declare more than is there: a sentence, not gigabytes."""

import functools

import growth
import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import chain, message
from ibdrr_tf.errors import UserError


@pytest.fixture(scope="module")
def fingerprints(codec_folder):
  return [
    model_file.fingerprint((codec_folder / name).read_bytes())
    for name in ("bitswap.ibbs", "static.ibst")
  ]


def forge(fingerprint, shape, text=b"", group=1, seed=0):
  """A chain with a right checksum that holds whatever it is told to."""
  return chain.seal(
    tf.constant([text]),
    tf.constant([seed]),
    tf.constant([*shape, 5], tf.int64),
    group,
    0,
    tf.constant(fingerprint),
  )[0].numpy()


@pytest.mark.parametrize(
  ("static", "shape", "options", "part"),
  [
    (True, (1 << 20, 1, 1), {}, "more images than its bytes can hold"),
    (True, (1, 9000, 9000), {}, "more images than its bytes can hold"),
    (True, (1, 400, 400), {}, "more images than its bytes can hold"),
    (False, (1, 2000, 2000), {}, "larger groups or images"),
    (False, (1 << 20, 1, 1), {"group": 1 << 14}, "than its bytes can hold"),
    (False, (1000, 9, 9), {"group": 900}, "larger groups or images"),
    (False, (1 << 31, 4, 4), {}, "an impossible number of images"),
    (False, (1 << 32, 1 << 16, 1 << 16), {}, "an impossible number"),
    (False, (3, 4, 4), {"seed": 1 << 23}, "an impossible number"),
    (False, (3, 4, 4), {"text": bytes(40)}, "latents that no encoder writes"),
    (False, (3, 4, 4), {"text": b"\0\1" * 6}, "too short|latents that no"),
    (False, (3, 4, 4), {"text": b"\0" * 7}, "than its bytes can hold"),
    (False, (3, 4, 4), {"text": b"\xff" * 40}, "a message is too short"),
  ],
)
def test_forged_chains_get_a_sentence(
  image_codec, fingerprints, static, shape, options, part
):
  string = forge(fingerprints[static], shape, **options)
  with growth.at_most(300), pytest.raises(UserError, match=part) as error:
    image_codec.codes.decompress([string])
  assert "\n" not in str(error.value) and "node" not in str(error.value)


def test_a_limit_that_can_be_raised(codec_folder, image_codec, fingerprints):
  """A chain of a bit for each code is believed, one of less up to a limit."""
  string = forge(fingerprints[0], (1 << 17, 2, 3), bytes(1 << 18), 100)
  with pytest.raises(UserError, match="declares more than 33554432 pixels"):
    image_codec.codes.shapes([string])
  from ibdrr_tf.codec.image_codec import load_image_codec

  wider = load_image_codec(codec_folder, most_places=1 << 20)
  assert wider.codes.shapes([string]).tolist() == [[1 << 17, 2, 3]]
  longer = forge(fingerprints[0], (1 << 17, 2, 3), bytes(1 << 19), 100)
  assert image_codec.codes.shapes([longer]).tolist() == [[1 << 17, 2, 3]]


def test_images_that_take_no_bytes_come_back(image_codec, fingerprints):
  """The first code everywhere: the coder writes nothing but zeros."""
  for side in (3, 260):
    top = np.zeros((2, side, side, 1), int)
    bottom = np.zeros((2, 2 * side, 2 * side, 1), int)
    chains = image_codec.codes.compress(top, bottom)
    got = image_codec.codes.decompress(chains)
    np.testing.assert_array_equal(got[0], top)
    np.testing.assert_array_equal(got[1], bottom)
  # What earlier versions wrote of it had no zeros at its end.
  short = forge(fingerprints[1], (50, 8, 8))
  assert not image_codec.codes.decompress([short])[0].any()


def test_a_pulled_length_of_31_bits_is_no_overflow():
  long = tf.constant([b"\xff\xff\xff\xffabc"])
  for function in (message.pull, tf.function(message.pull)):
    with pytest.raises(tf.errors.InvalidArgumentError, match="too short"):
      function(long)


@pytest.mark.parametrize("text", [b"", b"\0", b"\xfe\0\0\0"])
def test_putting_back_onto_too_short_a_message_is_refused(text):
  unpop = functools.partial(message.unpop, tf.constant([text]))
  with pytest.raises(tf.errors.InvalidArgumentError, match="too short"):
    unpop(tf.constant([b"abc"]))
