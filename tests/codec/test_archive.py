"""Archives: what goes in comes out, and nothing else ever does."""

import hashlib
import json
import resource
import struct
import sys
import time
import zlib

import growth
import numpy as np
import pytest
from mutations import mutate

from ibdrr_tf.codec import archive, commands
from ibdrr_tf.errors import UserError

SIZES = ((33, 47), (16, 16), (40, 48), (16, 16), (9, 300))


def make(names=("a.jpg", "b/c.png", "b/ü.png", "d.png", "e.webp")):
  groups = archive.group_by_grid(SIZES)
  chains = tuple((bytes([7 + k]) * (20 + k), b"x" * 3) for k in range(3))
  assert len(groups) == 3
  return archive.Archive(b"12345678", (1, 2), SIZES, names, chains)


def reseal(data):
  """Puts the checksum of the whole file right after a change."""
  return data[:-8] + hashlib.sha256(data[:-8]).digest()[:8]


def test_groups_are_by_padded_size_and_in_order():
  groups = archive.group_by_grid(SIZES)
  assert [group.grid for group in groups] == [(5, 6), (2, 2), (2, 38)]
  assert [group.members for group in groups] == [(0, 2), (1, 3), (4,)]


@pytest.mark.parametrize("names", [None, make().names])
def test_all_comes_back(names):
  original = make(names)
  back = archive.unpack(archive.pack(original), "x")
  assert back == original
  # 2 levels of depth 1 and 2 on (5·6)·2 + (2·2)·2 + 2·38 places.
  assert back.codes == (60 + 8 + 76) * (1 + 4 * 2)
  assert back.pixels == 33 * 47 + 2 * 256 + 40 * 48 + 9 * 300


def test_thousands_of_equal_images_need_few_bytes():
  many = archive.Archive(
    b"12345678", (1, 1), ((32, 32),) * 10_000, None, ((b"c" * 50,),)
  )
  assert len(archive.pack(many)) < 50 + 200


@pytest.mark.parametrize(
  ("damage", "part"),
  [
    (lambda d: b"PK\3\4" + d, "does not begin with IBDRR"),
    (lambda d: b"", "does not begin with IBDRR"),
    (lambda d: b"IBDRR", "cut off"),
    (lambda d: d[:5] + b"\x02" + d[6:], "version 2"),
    (lambda d: d[: len(d) // 2], "cut off"),
    (lambda d: d[:-1], "cut off"),
    (lambda d: d + b"\0", "damaged"),
  ],
)
def test_bad_files_get_one_sentence(damage, part):
  with pytest.raises(UserError, match=part) as error:
    archive.unpack(damage(archive.pack(make())), "f.ibdrr")
  assert str(error.value).startswith("f.ibdrr ")
  assert "\n" not in str(error.value)


@pytest.mark.parametrize(
  "name", ["../up.png", "/root.png", "a/../../b", "", "a/" * 300 + "b"]
)
def test_names_cannot_leave_the_folder(name):
  data = archive.pack(make(("a", "b", "c", "d", name)))
  with pytest.raises(UserError, match="damaged"):
    archive.unpack(data, "x")


def test_a_name_too_many_is_refused():
  """It would give an image the name of another one, which is then lost."""
  data = archive.pack(make(("a", "b", "c", "d", "e", "e")))
  with pytest.raises(UserError, match="damaged"):
    archive.unpack(data, "x")


def test_declared_sizes_are_checked_before_they_are_used():
  """A forged index may ask for anything; it gets a sentence, not memory."""
  data = archive.pack(make())
  prefix = struct.Struct("<5sB8sII")
  _, _, print_, packed, _ = prefix.unpack_from(data)
  huge = prefix.pack(b"IBDRR", 1, print_, packed, 0xFFFFFFFF)
  index = data[prefix.size + 8 : prefix.size + 8 + packed]
  forged = huge + hashlib.sha256(huge + index).digest()[:8] + index
  forged = reseal(forged + data[prefix.size + 8 + packed :])
  with pytest.raises(UserError, match="damaged"):
    archive.unpack(forged, "x")


def forge(index, body=b""):
  """An archive with right checksums whose index is any JSON text."""
  text = index if isinstance(index, bytes) else json.dumps(index).encode()
  packed = zlib.compress(text, 9)
  data = struct.pack("<5sB8sII", b"IBDRR", 1, bytes(8), len(packed), len(text))
  data += hashlib.sha256(data + packed).digest()[:8] + packed + body
  return data + hashlib.sha256(data).digest()[:8]


INDEX = {"depths": [1, 1], "sizes": [[8, 8]], "names": None, "chains": [[40]]}


@pytest.mark.parametrize(
  "index",
  [
    {**INDEX, "images": 1 << 26},
    b"[" + b"[]," * 20_000_000 + b"[]]",
    b"{" + b'"a":{' * 5000,
    {**INDEX, "images": 1, "names": ["\udcff"]},
    {**INDEX, "images": 1, "names": ["a/" * 3000 + "b.png"]},
    {**INDEX, "images": 1, "names": ["a" * 300]},
    {**INDEX, "images": 1, "names": "a"},
    {**INDEX, "images": 1, "names": [3]},
    {**INDEX, "images": 1, "sizes": [[8, 1 << 60]]},
    {**INDEX, "images": 1, "chains": [[-40]]},
    {**INDEX, "images": 1.0},
    [],
  ],
  ids=lambda index: str(index)[:60],
)
def test_forged_indices_get_a_sentence_that_is_true(index):
  """Their checksums do match, and they are small."""
  forged = forge(index, bytes(40))
  assert len(forged) < 100_000
  with growth.at_most(100), pytest.raises(UserError) as error:
    archive.unpack(forged, "x")
  assert "its index does not describe" in str(error.value)
  assert "checksum" not in str(error.value)


@pytest.fixture(scope="module")
def written(image_codec, noise, tmp_path_factory):
  """An archive of the tiny codec, its codes and images."""
  images = noise(6, 16, 16)
  top, bottom = image_codec.encode(images)
  chains = tuple(image_codec.codes.compress(top, bottom))
  original = archive.Archive(
    image_codec.fingerprint, (1, 1), ((16, 16),) * 6, None, (chains,)
  )
  decoded = image_codec.decode(top, bottom).numpy()
  return archive.pack(original), decoded


def images_of(data, coder):
  opened = archive.unpack(data, "f")
  groups = commands.open_groups(opened, coder, "f")
  result = dict(commands.decoded_images(opened, groups, coder))
  return np.stack([result[k] for k in range(len(result))])


def test_mutated_files_never_give_a_wrong_image(image_codec, written):
  """2,000 files: the original's images, or one sentence; quick and small."""
  data, decoded = written
  np.testing.assert_array_equal(images_of(data, image_codec), decoded)
  generator = np.random.default_rng(0)
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  started = time.process_time()
  same = 0
  for number in range(2000):
    changed = mutate(generator, data)
    # Every tenth passes the file's own checksum, so that the inner ones work.
    if number % 10 == 0 and len(changed) > 8:
      changed = reseal(changed)
    try:
      got = images_of(changed, image_codec)
    except UserError as error:
      assert "\n" not in str(error) and str(error).endswith(".")
      continue
    np.testing.assert_array_equal(got, decoded)
    same += 1
  assert same < 500  # Some mutations change nothing.
  assert time.process_time() - started < 120
  after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  kilo = 1 if sys.platform != "darwin" else 1024
  assert (after - before) / kilo < 200_000


def test_damage_inside_chains_is_found_behind_right_checksums(
  image_codec, written
):
  data, _ = written
  generator = np.random.default_rng(1)
  opened = archive.unpack(data, "f")
  for _ in range(100):
    chain = bytearray(opened.chains[0][0])
    chain[generator.integers(0, len(chain))] ^= int(generator.integers(1, 256))
    changed = archive.pack(
      archive.Archive(
        opened.fingerprint, (1, 1), opened.sizes, None, ((bytes(chain),),)
      )
    )
    with pytest.raises(UserError, match="a chain"):
      images_of(changed, image_codec)


@pytest.mark.parametrize("name", ["we\\ird.png", "\udcff.png", "../a.png"])
def test_names_that_could_not_be_read_again_are_refused(name):
  archive.check_index([(8, 8)], ["ünïcode/a b.png"])
  with pytest.raises(UserError, match=r"cannot hold.*rename it"):
    archive.check_index([(8, 8)], [name])


def test_an_index_that_would_be_too_large_is_refused(monkeypatch, written):
  opened = archive.unpack(written[0], "f")
  monkeypatch.setattr(archive, "_MOST_INDEX", 50)
  with pytest.raises(UserError, match="6 images are too many for one archive"):
    archive.check_index(opened.sizes, [f"{k}.png" for k in range(6)])
  with pytest.raises(UserError, match="too many for one archive"):
    archive.pack(opened)


def test_an_index_that_says_something_else_is_found(image_codec, written):
  opened = archive.unpack(written[0], "f")
  for sizes in (((16, 16),) * 5, ((16, 24),) * 6):
    changed = archive.Archive(
      opened.fingerprint, (1, 1), sizes, None, opened.chains
    )
    with pytest.raises(UserError, match="damaged"):
      images_of(archive.pack(changed), image_codec)
