"""The codecs that come with the package still read what they once wrote.

The golden archives hold random codes. After a codec has been replaced, write
them anew, from the project's folder:

    python tests/codec/test_pretrained.py
"""

import pathlib

import numpy as np
import pytest

from ibdrr_tf.codec import archive, pretrained
from ibdrr_tf.codec.image_codec import load_image_codec
from ibdrr_tf.codec_training import load_code_codec, load_vqvae
from ibdrr_tf.errors import UserError

GOLDEN = pathlib.Path(__file__).parent / "golden"
# Twelve images in chains of Bit-Swap, and two in a static one.
SIZES = ((24, 30),) * 12 + ((9, 16),) * 2
SHAPES = ((12, 3, 4), (2, 2, 2))


def golden_codes(depths, codes):
  """Codes of both groups, out of nowhere."""
  generator = np.random.default_rng(1993)
  return [
    (
      generator.integers(0, codes, (count, height, width, depths[0])),
      generator.integers(0, codes, (count, 2 * height, 2 * width, depths[1])),
    )
    for count, height, width in SHAPES
  ]


def codes_of(folder):
  """The size of a codec's codebooks."""
  return load_vqvae(folder).get_config()["codebook_size"]


def write(name):
  """The golden archive, as the package writes it today."""
  folder = pretrained.folder_of(name)
  codec = load_image_codec(folder)
  # Random codes are shorter in static chains; here Bit-Swap has no choice.
  coders = (load_code_codec(folder, chain_images=5), codec.codes)
  wanted = golden_codes(codec.depths, codes_of(folder))
  groups = zip(coders, wanted, strict=True)
  chains = tuple(tuple(coder.compress(*codes)) for coder, codes in groups)
  data = archive.Archive(codec.fingerprint, codec.depths, SIZES, None, chains)
  return codec, archive.pack(data)


@pytest.mark.parametrize("name", pretrained.names())
def test_shipped_codecs_load_and_decode_golden_strings(name):
  data = (GOLDEN / f"{name}.ibdrr").read_bytes()
  codec, now = write(name)
  assert now == data
  chains = archive.unpack(data, name).chains
  assert [len(group) for group in chains] == [3, 1]
  folder = pretrained.folder_of(name)
  wanted = golden_codes(codec.depths, codes_of(folder))
  for group, codes in zip(chains, wanted, strict=True):
    back = codec.codes.decompress(list(group))
    for got, want in zip(back, codes, strict=True):
      np.testing.assert_array_equal(got, want)


def test_shipped_codecs_are_small():
  assert pretrained.DEFAULT == "cifar100"
  assert {"cifar100", "shapes"} <= set(pretrained.names())
  folder = pretrained.folder_of("cifar100")
  assert sum(path.stat().st_size for path in folder.iterdir()) < 2.2e6


def test_folders_and_mistakes(codec_folder, tmp_path):
  assert pretrained.folder_of(str(codec_folder)) == codec_folder
  with pytest.raises(
    UserError, match="cifar100, cifar100_depth1, shapes, tiny_imagenet"
  ):
    pretrained.folder_of("imagenet")
  with pytest.raises(UserError, match=r"vqvae\.ibvq"):
    pretrained.folder_of(str(tmp_path))


if __name__ == "__main__":
  for shipped in pretrained.names():
    (GOLDEN / f"{shipped}.ibdrr").write_bytes(write(shipped)[1])
