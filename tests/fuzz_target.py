"""What a target of `fuzz` is."""

import abc

import numpy as np
from tiny_codec import write_codec

from ibdrr_tf.codec.image_codec import load_image_codec


class Target(abc.ABC):
  """Makes inputs and reads them; see the module."""

  def __init__(self, root):
    self.root = root
    self.codec = load_image_codec(
      write_codec(root / "codec", 0), chain_images=20, group=8
    )
    generator = np.random.default_rng(0)
    self.images = generator.integers(0, 256, (6, 16, 16, 3), np.uint8)

  def whole_inputs(self):
    """What was written, for which graphs are built first."""
    return [self.whole]

  @abc.abstractmethod
  def make(self, generator):
    """An input: bytes, or a pair."""

  @abc.abstractmethod
  def read(self, data):
    """Reads an input; raises UserError, or ends well."""

  def close(self):
    """Undoes what making it has changed."""

  # Modules whose coverage guides atheris, and what it may begin with.
  modules = ()
  seeds = ()

  def sealed(self, data):
    """An input of bytes that atheris made, with right checksums."""
    raise NotImplementedError
