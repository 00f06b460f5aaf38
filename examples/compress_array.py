"""Compresses an array of images to one byte string, and back.

    python examples/compress_array.py

Takes about 20 seconds on two CPU cores, most of them for loading TensorFlow and
building graphs.
"""

import numpy as np

import ibdrr_tf

# Smooth random images: 64 of 32 x 32 pixels.
generator = np.random.default_rng(0)
coarse = generator.integers(0, 256, (64, 4, 4, 3))
images = np.kron(coarse, np.ones((1, 8, 8, 1))).astype(np.uint8)

codec = ibdrr_tf.load_codec("cifar100")
string = codec.compress(images).numpy()
back = codec.decompress(string).numpy()

error = np.square(images.astype(float) - back).mean()
print(f"{images.nbytes:,} bytes of pixels -> {len(string):,} bytes")
print(f"PSNR {10 * np.log10(255**2 / error):.1f} dB")

# Only uint8 is taken: floats would be stored as black images.
try:
  codec.compress(images / 255.0)
except ibdrr_tf.UserError as sentence:
  print(f"refused: {sentence}")
