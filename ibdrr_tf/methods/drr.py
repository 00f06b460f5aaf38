"""Discrete Representation Replay: every image is remembered, as a bit-string.

Section 4 of the paper. The codec's lossy stage is trained on the base classes
and frozen. In each step the classifier is trained from scratch on
reconstructions of all images seen, old and new, and tested on raw images. Then
the lossless stage is fine-tuned on all codes, and all of them are written anew:
see `replay.code_memory`.
"""

import functools

from ibdrr_tf.methods.method import Method, argmax, cross_entropy, from_scratch
from ibdrr_tf.replay.code_memory import CodeMemory

__all__ = ["DRR"]

DRR = Method(
  memory=functools.partial(CodeMemory, raw="none"),
  start=from_scratch,
  objective=cross_entropy,
  predict=argmax,
)
