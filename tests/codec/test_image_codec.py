"""Both stages in one graph, in this process and out of it."""

import struct
import subprocess
import sys

import growth
import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec import image_codec as image_codec_module
from ibdrr_tf.codec.lossless import range_coder
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.errors import UserError


def assert_same_codes(got, want):
  for a, b in zip(got, want, strict=True):
    np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def vqvae(codec_folder):
  """The stored model, opened without packing."""
  return vqvae_file.from_bytes((codec_folder / "vqvae.ibvq").read_bytes())


@pytest.mark.parametrize("size", [(32, 32), (33, 47), (1, 1), (8, 200)])
def test_images_of_any_size_come_back(image_codec, vqvae, noise, size):
  images = noise(3, *size)
  codes = vqvae.encode(images)
  assert_same_codes(image_codec.encode(images), codes)
  string = image_codec.compress(images)
  assert string.shape == () and string.dtype == tf.string
  assert_same_codes(image_codec.decompress_codes(string), codes)
  want = vqvae.decode(*codes)[:, : size[0], : size[1]]
  np.testing.assert_array_equal(image_codec.decompress(string), want)


def test_no_images_and_many(image_codec, vqvae, noise):
  none = image_codec.decompress(image_codec.compress(noise(0, 9, 17)))
  assert none.shape == (0, 9, 17, 3)
  # More than the VQ-VAE takes at once, in several chains and a rest.
  images = noise(70, 64, 72)
  string = image_codec.compress(images)
  assert_same_codes(
    image_codec.decompress_codes(string), image_codec.encode(images)
  )
  np.testing.assert_array_equal(
    image_codec.decompress(string),
    vqvae.decode(*image_codec.encode(images))[:, :64],
  )


def test_strings_are_the_chains_of_the_library(image_codec, noise):
  images = noise(45, 16, 16)
  chains = image_codec.codes.compress(*image_codec.encode(images))
  assert len(chains) == 3
  assert image_codec.compress(images).numpy().endswith(b"".join(chains))


def test_a_chain_maps_over_a_dataset(image_codec, noise):
  top, bottom = image_codec.encode(noise(45, 16, 16))
  chains = image_codec.codes.compress(top, bottom)
  planes = list(
    tf.data.Dataset.from_tensor_slices(chains).map(
      image_codec.codes.decode_chain
    )
  )
  assert [len(p) for p in planes] == [20, 20, 5]
  np.testing.assert_array_equal(np.concatenate(planes)[..., :1], top)
  phase = bottom.numpy()[:, 1::2, 1::2, 0]
  np.testing.assert_array_equal(np.concatenate(planes)[..., 2], phase)


def test_few_images_are_stored_in_the_shorter_form(image_codec, codec_folder):
  (codec_folder.parent / "alone").mkdir(exist_ok=True)
  alone = codec_folder.parent / "alone"
  for name in ("vqvae.ibvq", "bitswap.ibbs"):
    (alone / name).write_bytes((codec_folder / name).read_bytes())
  only_bit_swap = image_codec_module.load_image_codec(alone, chain_images=20)
  generator = np.random.default_rng(3)
  top = generator.integers(0, 16, (1, 6, 6, 1))
  bottom = generator.integers(0, 16, (1, 12, 12, 1))
  (long,) = only_bit_swap.codes.compress(top, bottom)
  (short,) = image_codec.codes.compress(top, bottom)
  # 180 codes of 4 bits and a header, instead of a seed of latents as well.
  assert len(short) < len(long) and len(short) < 180 * 4 / 8 + 50
  assert_same_codes(image_codec.codes.decompress([short]), (top, bottom))
  # Chains of both forms stand side by side.
  for chain in (short, long):
    assert_same_codes(image_codec.codes.decompress([chain]), (top, bottom))


def test_grids_too_large_for_bits_back(image_codec):
  generator = np.random.default_rng(4)
  top = generator.integers(0, 16, (1, 150, 150, 1))
  bottom = generator.integers(0, 16, (1, 300, 300, 1))
  chains = image_codec.codes.compress(top, bottom)
  assert_same_codes(image_codec.codes.decompress(chains), (top, bottom))


@pytest.mark.parametrize(
  ("damage", "part"),
  [
    (lambda s: b"GIF89a" + s, "no string of compressed images"),
    (lambda s: b"", "no string of compressed images"),
    (lambda s: s[:20], "cut off"),
    (lambda s: s[:40], "damaged"),
    (lambda s: s[:-1], "damaged"),
    (lambda s: s + b"\0", "damaged"),
    (lambda s: s[:4] + b"\x02" + s[5:], "newer"),
    (lambda s: s[:5] + b"\0" * 8 + s[13:], "another VQ-VAE"),
    (lambda s: s[:16] + b"\x09" + s[17:], "damaged"),
    (lambda s: s[:-5] + b"x" + s[-4:], "a chain is damaged"),
  ],
)
def test_bad_strings_get_a_sentence(image_codec, noise, damage, part):
  string = damage(image_codec.compress(noise(2, 16, 16)).numpy())
  for function in (image_codec.decompress, image_codec.decompress_codes):
    with pytest.raises(UserError, match=part) as error:
      function(string)
    sentence = str(error.value)
    assert "\n" not in sentence and sentence.endswith(".")


@pytest.mark.parametrize("string", ["text", None, 3, [b"a", b"b"], np.zeros(3)])
def test_what_is_no_string_is_refused(image_codec, string):
  kinds = [string]
  if not isinstance(string, (str, type(None))):
    kinds.append(tf.constant(string))
  for kind in kinds:
    with pytest.raises(UserError, match="give the bytes that compress"):
      image_codec.decompress(kind)


def test_the_functions_serve_in_a_data_set(image_codec, noise):
  images = noise(2, 16, 16)
  string = image_codec.compress(images)
  strings = tf.data.Dataset.from_tensors(string)
  (got,) = strings.map(image_codec.decompress)
  np.testing.assert_array_equal(got, image_codec.decompress(string))


def forge(image_codec, size, lengths=(), body=b""):
  """A string with a right checksum that declares anything."""
  header = b"IBDI\x01" + image_codec.fingerprint
  header += struct.pack(">4I", *size, len(lengths))
  header += struct.pack(f">{len(lengths)}I", *lengths)
  return header + tf.fingerprint([header]).numpy()[0].tobytes() + body


@pytest.mark.parametrize(
  ("size", "lengths", "body"),
  [
    ((0, (1 << 31) - 1, 1), (), b""),
    ((0, 1, (1 << 32) - 1), (), b""),
    ((0, 0, 8), (), b""),
    ((1 << 31, 8, 8), (), b""),
    ((1, 8, 8), (1 << 31,), b"ab"),
    ((1, 8, 8), ((1 << 32) - 1, 3), b"ab"),
    ((1, 8, 8), (0xFFFFFFFE, 4), b"ab"),
    ((1, 8, 8), (0,) * 50_000, b""),
  ],
)
def test_forged_strings_get_a_sentence(image_codec, size, lengths, body):
  string = forge(image_codec, size, lengths, body)
  with (
    growth.at_most(300),
    pytest.raises(UserError, match=r"string is damaged|chain is cut off"),
  ):
    image_codec.decompress(string)


def test_no_images_of_a_large_size_take_no_memory(image_codec):
  with growth.at_most(300):
    string = forge(image_codec, (0, 500_000, 400_001))
    assert image_codec.decompress(string).shape == (0, 500_000, 400_001, 3)


@pytest.mark.parametrize("code", [-1, 16, 1 << 30])
def test_codes_outside_the_codebook_are_not_decoded(image_codec, noise, code):
  top, bottom = (level.numpy() for level in image_codec.encode(noise(2, 8, 8)))
  with pytest.raises(UserError, match="belong together"):
    image_codec.decode(top, bottom[:, :1])
  top[1] = code
  with pytest.raises(UserError, match="outside the code"):
    image_codec.decode(top, bottom)


WRONG = [
  (np.full([2, 16, 16, 3], 0.5, np.float32), "float32 [2, 16, 16, 3]"),
  (np.full([2, 16, 16, 3], 0.5, np.float64), "float64 [2, 16, 16, 3]"),
  (np.full([2, 16, 16, 3], 0.5, np.float16), "float16 [2, 16, 16, 3]"),
  (np.ones([2, 16, 16, 3], np.int64), "int64 [2, 16, 16, 3]"),
  (np.ones([2, 16, 16, 3], bool), "bool [2, 16, 16, 3]"),
  (np.zeros([16, 16, 3], np.uint8), "uint8 [16, 16, 3]"),
  (np.zeros([2, 16, 16, 4], np.uint8), "uint8 [2, 16, 16, 4]"),
  (np.zeros([2, 16, 16], np.float32), "float32 [2, 16, 16]"),
  (np.uint8(3), "uint8 []"),
]


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("name", ["compress", "encode"])
@pytest.mark.parametrize(("images", "part"), WRONG)
def test_only_uint8_images_are_taken(
  image_codec, name, images, part, as_tensor
):
  """TensorFlow cast arrays: images in [0, 1] were stored as black."""
  if as_tensor:
    images = tf.constant(images)
  with pytest.raises(UserError) as error:
    getattr(image_codec, name)(images)
  message = str(error.value)
  assert f"images are {part}: give uint8" in message
  assert "\n" not in message and message.endswith(".")
  assert ("astype" in message) == ("float" in part)


@pytest.mark.parametrize("name", ["compress", "encode"])
@pytest.mark.parametrize(("images", "part"), WRONG)
def test_a_saved_model_takes_only_uint8(restored, name, images, part):
  with pytest.raises(tf.errors.InvalidArgumentError) as error:
    getattr(restored, name)(images)
  message = str(error.value)
  assert f"images are {part.replace(',', '')}: give uint8" in message
  with pytest.raises(tf.errors.InvalidArgumentError, match="give uint8"):
    list(tf.data.Dataset.from_tensors(images).map(getattr(restored, name)))


def test_a_saved_model_tells_the_sentence_in_tensorflow_s_error(restored):
  with pytest.raises(tf.errors.InvalidArgumentError, match="no string of comp"):
    restored.decompress(b"junk")


def test_a_saved_model_takes_images_of_unknown_shape(restored, noise):
  images = noise(2, 16, 24)
  dataset = tf.data.Dataset.from_generator(
    lambda: [images], output_signature=tf.TensorSpec(None, tf.uint8)
  )
  (string,) = dataset.map(restored.compress)
  assert string == restored.compress(images)


def test_a_saved_model_is_built_once_for_all_shapes(restored, noise):
  images = tf.TensorSpec([None, None, None, 3], tf.uint8)
  built = restored.encode.get_concrete_function(images)
  for size in (8, 9):
    assert restored.encode.get_concrete_function(noise(1, size, 8)) is built


_USE = """
import importlib
import sys
sys.modules["ibdrr_tf"] = None  # Importing it would fail.
import numpy as np
import tensorflow as tf
importlib.import_module(sys.argv[3])
codec = tf.saved_model.load(sys.argv[1])
files = np.load(sys.argv[2])
images = files["images"]
top, bottom = codec.encode(images)
assert top.dtype == tf.int32 and top.shape == (30, 3, 4, 1), top.shape
assert bottom.shape == (30, 6, 8, 1)
back = codec.decompress_codes(tf.constant(files["string"].tobytes()))
np.testing.assert_array_equal(back[0], files["top"])
np.testing.assert_array_equal(back[1], files["bottom"])
dataset = tf.data.Dataset.from_tensors(images).map(codec.compress)
(string,) = dataset
same = np.array_equal(top, files["top"])
same &= np.array_equal(bottom, files["bottom"])
print("codes differ" if not same else "codes agree")
if same:
  assert string.numpy() == files["string"].tobytes()
(decoded,) = dataset.map(codec.decompress)
assert decoded.dtype == tf.uint8
np.testing.assert_array_equal(
  decoded, codec.decode(top, bottom)[:, :23, :30]
)
"""


@pytest.fixture(scope="module")
def exported(image_codec, noise, tmp_path_factory):
  folder = tmp_path_factory.mktemp("export")
  image_codec_module.export(image_codec, folder / "codec")
  images = noise(30, 23, 30)
  top, bottom = image_codec.encode(images)
  string = image_codec.compress(images).numpy()
  np.savez(
    folder / "data.npz",
    images=images,
    top=top,
    bottom=bottom,
    string=np.frombuffer(string, np.uint8),
  )
  return folder


@pytest.fixture(scope="module")
def restored(exported):
  return tf.saved_model.load(str(exported / "codec"))


def test_a_saved_model_says_which_import_it_needs(exported):
  note = exported / "codec" / "assets.extra" / "README.txt"
  assert f"import {range_coder.OPS} " in note.read_text()


@pytest.mark.parametrize("onednn", [1, 0])
def test_a_saved_model_needs_no_package(exported, onednn):
  """Codes are exact even where the floats of the VQ-VAE are not the same."""
  result = subprocess.run(
    [
      *(sys.executable, "-c", _USE),
      str(exported / "codec"),
      str(exported / "data.npz"),
      range_coder.OPS,
    ],
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
    cwd=exported,
    env={
      "TF_ENABLE_ONEDNN_OPTS": str(onednn),
      "TF_CPP_MIN_LOG_LEVEL": "3",
      "PATH": "/usr/bin:/bin",
    },
  )
  assert result.returncode == 0, result.stderr
  assert "codes" in result.stdout
  if onednn:
    assert "codes agree" in result.stdout


def test_a_saved_model_is_small(exported, codec_folder):
  """3 MB of graph, and 1.5 times the stored models."""
  size = sum(
    path.stat().st_size
    for path in (exported / "codec").rglob("*")
    if path.is_file()
  )
  stored = sum(path.stat().st_size for path in codec_folder.iterdir())
  assert size < 1.5 * stored + 3e6
