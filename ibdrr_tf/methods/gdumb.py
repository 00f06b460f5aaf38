"""GDumb: a balanced memory, and a network that learns from it alone."""

import functools

from ibdrr_tf.methods.method import Method
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

__all__ = ["GDUMB"]

# Prabhu et al. (2020). New images enter a memory that has equally many of each
# class, chosen at random; then a network learns from scratch, and sees nothing
# but this memory. It is what any method must beat that also sees all new
# images. The authors train for 256 epochs of 16 images with a rate that falls
# from .05 to .0005 along repeated cosines, and with CutMix; here the recipe is
# that of all rows (`classifier`), without CutMix, which no other row has.
GDUMB = Method(
  memory=functools.partial(ExemplarMemory, selected="random", learned="kept")
)
