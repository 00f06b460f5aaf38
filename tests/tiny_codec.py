"""A codec of random weights: as exact as a trained one, and quick to load."""

import numpy as np

from ibdrr_tf.codec.lossless import bit_swap_file, code_tree, static
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE

CODES = 16


def small_vqvae(codes: int = CODES, **options) -> HierarchicalVQVAE:
  """One that encodes at once, with as many codes on each level."""
  return HierarchicalVQVAE(
    codebook_size=codes,
    embedding=4,
    channels=8,
    residual_blocks=1,
    residual_channels=4,
    **options,
  )


def write_codec(folder, seed):
  """Fills a folder with both stages and static tables."""
  generator = np.random.default_rng(seed)
  vqvae = small_vqvae(seed=seed)
  for level in vqvae.quantizers:
    level.adopt(
      [generator.normal(size=b.shape).astype("f4") for b in level.codebooks]
    )
  vqvae_file.round_weights(vqvae)
  books = [b.numpy() for level in vqvae.quantizers for b in level.codebooks]
  model = BitSwapModel(
    [code_tree.make_tree(book) for book in books],
    latents=1,
    latent_channels=1,
    width=8,
    blocks=1,
    embedding=4,
  )
  for variable in model.trainable_variables:
    value = generator.normal(size=variable.shape) * 0.2
    variable.assign(np.rint(value * 128) / 128)
  planes = generator.integers(0, CODES, (50, 2, 2, 5))
  tables = static.count_tables(planes, CODES, 1, 1, per_position=False)
  folder.mkdir(exist_ok=True)
  (folder / "vqvae.ibvq").write_bytes(vqvae_file.to_bytes(vqvae))
  (folder / "bitswap.ibbs").write_bytes(bit_swap_file.to_bytes(model))
  (folder / "static.ibst").write_bytes(tables.to_bytes())
  return folder
