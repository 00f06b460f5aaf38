"""The lossless stage out of a stored Bit-Swap model."""

import numpy as np
import tensorflow as tf

from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.codec.lossless.bit_swap import BitSwap
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossless.code_codec import CodeCodec

__all__ = ["BitSwapCodec", "are_alike", "codec_of"]


def codec_of(data: bytes, **options: int) -> CodeCodec:
  """Reads a stored model and makes it code.

  Args:
    data: what `bit_swap_file.to_bytes` has stored.
    **options: of `CodeCodec`.
  """
  return BitSwapCodec(**options).load(data)


class BitSwapCodec:
  """A codec whose model can be exchanged.

  Building its graphs takes seconds. A model that is fine-tuned in each phase
  keeps its shape, so that only its numbers need be exchanged in them.

  Args:
    **options: of `CodeCodec`.
  """

  def __init__(self, **options: int):
    self._options = options
    self._model: BitSwapModel | None = None

  def load(self, data: bytes) -> CodeCodec:
    """The codec of a stored model; what was loaded before is gone."""
    model = bit_swap_file.from_bytes(data)
    fingerprint = model_file.fingerprint(data)
    if self._model is not None and are_alike(model, self._model):
      self._model.set_weights(model.get_weights())
      self._fingerprint.assign(fingerprint)
      return self._codec
    shape = model.get_config()
    self._model = model
    with tf.device("/CPU:0"):
      self._fingerprint = tf.Variable(fingerprint, trainable=False)
    self._codec = CodeCodec(
      BitSwap(model),
      self._fingerprint,
      shape["top_depth"],
      shape["bottom_depth"],
      **self._options,
    )
    return self._codec


def are_alike(one: BitSwapModel, other: BitSwapModel) -> bool:
  """Whether two models differ in nothing but weights."""
  shapes = [model.get_config() | {"seed": 0} for model in (one, other)]
  return shapes[0] == shapes[1] and all(
    np.array_equal(*trees) for trees in zip(one.trees, other.trees, strict=True)
  )
