import numpy as np
import pytest
from tiny_codec import write_codec

from ibdrr_tf.codec.image_codec import load_image_codec


@pytest.fixture(scope="session")
def codec_folder(tmp_path_factory):
  return write_codec(tmp_path_factory.mktemp("codecs") / "tiny", 0)


@pytest.fixture(scope="session")
def other_folder(tmp_path_factory):
  return write_codec(tmp_path_factory.mktemp("codecs") / "other", 1)


@pytest.fixture(scope="session")
def image_codec(codec_folder):
  return load_image_codec(codec_folder, chain_images=20, group=8, parallel=3)


@pytest.fixture(scope="session")
def noise():
  """Images, uint8 [n, h, w, 3], of noise with some structure."""

  def make(count, height, width, seed=0):
    generator = np.random.default_rng(seed)
    base = generator.integers(0, 200, (count, 1, 1, 3))
    detail = generator.integers(0, 56, (count, height, width, 3))
    return (base + detail).astype(np.uint8)

  return make
