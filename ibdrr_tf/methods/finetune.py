"""New data only, no memory: what is lost without one."""

from ibdrr_tf.data import stream
from ibdrr_tf.methods.base import Method

__all__ = ["Finetune"]


class Finetune(Method):
  """Goes on from the last phase's weights with nothing but the new classes."""

  initialize = Method._continue_from_last

  def examples(self, phase: int) -> stream.Examples:
    """The raw training images of the new classes."""
    return self.new_examples(phase)

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """Nothing."""
    return {"images": 0}
