"""The lossless stage out of a stored Bit-Swap model."""

import functools

from ibdrr_tf.codec import bit_swap_file, model_file
from ibdrr_tf.codec.bit_swap import BitSwap
from ibdrr_tf.codec.code_codec import CodeCodec

__all__ = ["codec_of"]


# Building a codec's graphs takes seconds, and a phase asks for the same one
# when it writes, verifies and reads again.
@functools.lru_cache(maxsize=2)
def codec_of(data: bytes, **options: int) -> CodeCodec:
  """Reads a stored model and makes it code.

  Args:
    data: what `bit_swap_file.to_bytes` has stored.
    **options: of `CodeCodec`.
  """
  model = bit_swap_file.from_bytes(data)
  shape = model.get_config()
  return CodeCodec(
    BitSwap(model),
    model_file.fingerprint(data),
    shape["top_depth"],
    shape["bottom_depth"],
    **options,
  )
