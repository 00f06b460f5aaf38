"""What forgetting costs at most, and what memory could buy at most."""

import functools

from ibdrr_tf.methods.method import Method, from_last
from ibdrr_tf.replay.image_memory import ImageMemory
from ibdrr_tf.replay.memory import NoMemory

__all__ = ["FINETUNE", "UPPER_BOUND"]

# New images only, from the last weights, and no memory.
FINETUNE = Method(memory=NoMemory, start=from_last, has_budget=False)

# Joint training on all raw images seen, from scratch (UB in the paper's
# tables). It keeps all pixels, three bytes each, and the ledger counts them; a
# byte budget makes it one of as many raw images as fit.
UPPER_BOUND = Method(
  memory=functools.partial(ImageMemory, kind="pixels", raw="none")
)
