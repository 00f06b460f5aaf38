"""Images replayed as files: what a user would do without codes.

`raw_replay` keeps a few raw exemplars of each class, random or herded. It goes
on from the last weights: with so few images of old classes, a network trained
from scratch would hardly know them. `webp_replay` and `jpeg_replay` keep every
image and train from scratch, as DRR does; so does `sheet_replay`, which tiles
the images of a class into one AVIF or WebP picture (`memory.sheet`).
`memory.information_back` adds to them what IB-DRR* or IB-DRR adds to DRR.
"""

import functools

from ibdrr_tf.methods.ib_drr import information_back
from ibdrr_tf.methods.method import Method, from_last
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory
from ibdrr_tf.replay.image_memory import ImageMemory
from ibdrr_tf.replay.sheet_memory import SheetMemory

__all__ = ["JPEG_REPLAY", "RAW_REPLAY", "SHEET_REPLAY", "WEBP_REPLAY"]

SHEET_REPLAY = Method(memory=SheetMemory, objective=information_back)
RAW_REPLAY = Method(memory=ExemplarMemory, start=from_last)
WEBP_REPLAY = Method(
  memory=functools.partial(ImageMemory, kind="webp"), objective=information_back
)
JPEG_REPLAY = Method(
  memory=functools.partial(ImageMemory, kind="jpeg"), objective=information_back
)
