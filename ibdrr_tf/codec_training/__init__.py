"""Trains the codec of a run: the lossy stage, then the lossless one."""

from ibdrr_tf.codec_training.lossless import (
  BITSWAP_FILE,
  STATIC_FILE,
  BitSwapTrainer,
  load_code_codec,
  store_bit_swap,
  store_static,
)
from ibdrr_tf.codec_training.lossy import (
  VQVAE_FILE,
  draw_reconstructions,
  evaluate_vqvae,
  load_vqvae,
  store_vqvae,
  train_vqvae,
)
from ibdrr_tf.codec_training.run_codec import (
  export_codec,
  prepare_codec,
)

__all__ = [
  "BITSWAP_FILE",
  "STATIC_FILE",
  "VQVAE_FILE",
  "BitSwapTrainer",
  "draw_reconstructions",
  "evaluate_vqvae",
  "export_codec",
  "load_code_codec",
  "load_vqvae",
  "prepare_codec",
  "store_bit_swap",
  "store_static",
  "store_vqvae",
  "train_vqvae",
]
