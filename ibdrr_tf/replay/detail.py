"""How much detail codes may keep within a number of bytes.

A VQ-VAE with blank codes serves many rates (see `quantizer`). Here is the
search for the finest one whose bit-strings fit, by what a Bit-Swap model says
they cost: nothing is coded, so that a step costs about a second.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.evaluation import rate
from ibdrr_tf.replay.codec import coarsen_codes
from ibdrr_tf.replay.codes import Codes

__all__ = ["FINEST", "estimated_bytes", "finest_detail"]

FINEST = 100
_BATCH = 250
# Images whose bits stand for those of all.
_SAMPLE = 2_000


def estimated_bytes(model: BitSwapModel | None, codes: Codes) -> float:
  """About how long the bit-strings of codes are, without headers.

  Args:
    model: that will code them, or one that is near; None takes the entropy of
      single codes, which is more than any model needs.
    codes: of which some are looked at.
  """
  if not len(codes):
    return 0.0
  step = max(1, len(codes) // _SAMPLE)
  some = codes.take(np.arange(0, len(codes), step))
  if model is None:
    return rate.code_bytes(some.top, some.bottom) * len(codes)
  planes = some.planes()
  bits = 0.0
  for start in range(0, len(planes), _BATCH):
    part = tf.constant(planes[start : start + _BATCH])
    bits += float(tf.reduce_sum(model.elbo_bits(part)[0]))
  return bits / 8 / len(some) * len(codes)


def finest_detail(
  vqvae: HierarchicalVQVAE,
  codes: Codes,
  fits: Callable[[Codes], bool],
  most: int = FINEST,
) -> int:
  """The most detail, 0 to `most`, at which codes fit; 0 if none does.

  Args:
    vqvae: the lossy stage; without blank codes all detail stays.
    codes: of all images.
    fits: whether coarser codes are short enough.
    most: where to begin.
  """
  if not vqvae.bottom_quantizer.blank:
    return most
  low, high = 0, most + 1  # The lower one fits, or is all that is left.
  while high - low > 1:
    middle = most if high > most else (low + high) // 2
    if fits(coarsen_codes(vqvae, codes, middle)):
      low = middle
    else:
      high = middle
  return low
