"""The compact storage of a VQ-VAE: exact round trip, size, damage."""

import hashlib
import struct
import subprocess
import sys

import numpy as np
import pytest

from ibdrr_tf.codec.lossy import vqvae, vqvae_file
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.errors import UserError

SMALL = {
  "codebook_size": 16,
  "embedding": 8,
  "channels": 16,
  "residual_blocks": 1,
  "residual_channels": 8,
  "bottom_depth": 2,
}


def noise(*shape, seed=0):
  rng = np.random.default_rng(seed)
  return rng.integers(0, 256, shape).astype(np.uint8)


def some_model(**kwargs):
  """A model whose codebooks have met data, so that codes differ."""
  model = HierarchicalVQVAE(**SMALL, **kwargs)
  model.quantize(noise(8, 16, 16, 3), training=True)
  return model


def sealed(content):
  return content + hashlib.sha256(content).digest()[:8]


@pytest.mark.parametrize(
  ("options", "version"),
  [
    ({"layout": "paper"}, 1),
    ({"layout": "subpixel"}, 1),
    ({"top_depth": 0}, 2),
    ({"blank": True}, 2),
    ({"kernel_levels": 7}, 2),
  ],
)
def test_round_trip_is_exact(options, version):
  """Older programs read what has nothing new to them."""
  model = some_model(**options)
  data = vqvae_file.to_bytes(model)
  assert data[4] == version
  loaded = vqvae_file.from_bytes(data)
  assert vqvae_file.to_bytes(loaded) == data
  vqvae_file.round_weights(model)
  assert vqvae_file.to_bytes(model) == data
  assert loaded.get_config() == model.get_config()
  for (one, _), (two, _) in zip(
    model.stored_variables(), loaded.stored_variables(), strict=True
  ):
    np.testing.assert_array_equal(one, two)
  images = noise(4, 24, 16, 3, seed=1)
  top, bottom = model.encode(images)
  assert len(np.unique(bottom)) > 4
  for one, two in zip((top, bottom), loaded.encode(images), strict=True):
    np.testing.assert_array_equal(one, two)
  np.testing.assert_array_equal(
    model.decode(top, bottom), loaded.decode(top, bottom)
  )


def test_training_sees_kernels_as_they_will_be_stored():
  model = some_model(kernel_levels=7)
  images = noise(4, 16, 16, 3).astype(np.float32) / 255
  networks = (model.encode_bottom, model.encode_top)
  seen, before = images, images
  for network in networks:
    seen, before = network(seen, training=True), network(before)
  vqvae_file.round_weights(model)
  after = images
  for network in networks:
    after = network(after)
  assert np.abs(before - seen).max() > 0.01
  np.testing.assert_allclose(after, seen, atol=1e-3)
  for variable, levels, _ in vqvae_file.stored_levels(model):
    if len(variable.shape) == 4:
      assert np.abs(levels).max() == 7
  sizes = [
    len(vqvae_file.to_bytes(some_model(**options)))
    for options in ({"kernel_levels": 7}, {})
  ]
  assert sizes[0] < 0.8 * sizes[1]


def test_everything_that_codes_is_stored():
  model = some_model()
  stored = {id(v) for v, _ in model.stored_variables()}
  assert {id(v) for v in model.trainable_variables} <= stored
  codebooks = [
    *model.top_quantizer.codebooks,
    *model.bottom_quantizer.codebooks,
  ]
  assert {id(v) for v in codebooks} <= stored
  assert len(stored) == len(model.trainable_variables) + 3


def test_papers_architecture_fits_in_1_3_megabytes():
  assert len(vqvae_file.to_bytes(HierarchicalVQVAE(layout="paper"))) < 1.3e6


def test_rounding_hardly_changes_the_reconstruction():
  model = some_model()
  images = noise(4, 16, 16, 3, seed=1)
  codes = model.encode(images)
  before = model.decode(*codes)
  vqvae_file.round_weights(model)
  assert np.mean(vqvae.psnr(before, model.decode(*codes))) > 25


def test_stored_model_gives_the_same_codes_in_a_fresh_process(tmp_path):
  model = some_model()
  vqvae_file.round_weights(model)
  images = noise(4, 16, 16, 3, seed=1)
  (tmp_path / "model").write_bytes(vqvae_file.to_bytes(model))
  np.save(tmp_path / "images.npy", images)
  script = """
import pathlib, sys
import numpy as np
from ibdrr_tf.codec.lossy import vqvae_file
folder = pathlib.Path(sys.argv[1])
model = vqvae_file.from_bytes((folder / "model").read_bytes())
top, bottom = model.encode(np.load(folder / "images.npy"))
np.savez(folder / "codes.npz", top=top, bottom=bottom)
"""
  subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
  top, bottom = model.encode(images)
  with np.load(tmp_path / "codes.npz") as codes:
    np.testing.assert_array_equal(codes["top"], top)
    np.testing.assert_array_equal(codes["bottom"], bottom)


def test_loaded_model_can_be_trained_further():
  loaded = vqvae_file.from_bytes(vqvae_file.to_bytes(some_model()))
  before = loaded.bottom_quantizer.codebooks[0].numpy()
  loaded.quantize(noise(8, 16, 16, 3), training=True)
  after = loaded.bottom_quantizer.codebooks[0].numpy()
  # The codes move on from where they are instead of starting anew.
  assert 0 < np.abs(after - before).mean() < 0.2 * np.abs(before).mean()


def test_damaged_foreign_and_newer_data():
  data = vqvae_file.to_bytes(some_model())
  for foreign in (b"", b"IBVQ", b"\x89PNG" + data):
    with pytest.raises(UserError, match="not a stored VQ-VAE"):
      vqvae_file.from_bytes(foreign)
  for position in (8, 60, len(data) // 2, len(data) - 1):
    damaged = bytearray(data)
    damaged[position] ^= 1
    with pytest.raises(UserError, match="damaged"):
      vqvae_file.from_bytes(bytes(damaged))
  with pytest.raises(UserError, match="damaged"):
    vqvae_file.from_bytes(data[:-100])
  newer = sealed(data[:4] + struct.pack("<H", 3) + data[6:-8])
  with pytest.raises(UserError, match="version 3"):
    vqvae_file.from_bytes(newer)
