"""Trains the codec of a run: the lossy stage, then the lossless one."""

from ibdrr_tf.codec_training.lossless import (
  BITSWAP_FILE,
  STATIC_FILE,
  encode_all,
  load_code_codec,
  store_static,
  train_bit_swap,
)
from ibdrr_tf.codec_training.lossy import (
  VQVAE_FILE,
  evaluate_vqvae,
  load_vqvae,
  reconstruct,
  store_vqvae,
  train_vqvae,
)

__all__ = [
  "BITSWAP_FILE",
  "STATIC_FILE",
  "VQVAE_FILE",
  "encode_all",
  "evaluate_vqvae",
  "load_code_codec",
  "load_vqvae",
  "reconstruct",
  "store_static",
  "store_vqvae",
  "train_bit_swap",
  "train_vqvae",
]
