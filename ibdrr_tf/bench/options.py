"""What a measurement can be told; needs no TensorFlow."""

import dataclasses
from typing import Any

from ibdrr_tf.codec import pretrained

__all__ = ["KINDS", "Options"]

# The measurements; `bench.kinds` has their functions.
KINDS = (
  "codec",
  "replay",
  "train",
  "precision",
  "memory",
  "stream",
  "accuracy",
  "lossy",
  "lossless",
  "drift",
)


@dataclasses.dataclass(frozen=True)
class Options:
  """What a measurement is told besides the config.

  Attributes:
    arguments: of the command, as given.
    codecs: names or folders; none is the kind's own choice.
    dataset: as given; "" leaves the choice to the kind.
    photographs: a folder of image files, or "".
    picture: where to draw reconstructions, or "".
    classify: a folder for the checkpoints of classifiers, or "".
    quick: whether to measure less, in a minute or two.
    sizes: whether to try sizes of chains and groups.
    images: of `accuracy`, numbers of images that models are divided by.
    budgets: of `accuracy`, bytes an image.
    seeds: of `accuracy`, how many.
    forms: of `accuracy`, those to measure; none is all.
    steps: of `accuracy`, in how many the images arrive; 1 is all at once.
    json: where the figures go, or "".
  """

  arguments: tuple[str, ...] = ()
  codecs: tuple[str, ...] = ()
  dataset: str = ""
  photographs: str = ""
  picture: str = ""
  classify: str = ""
  quick: bool = False
  sizes: bool = False
  images: tuple[int, ...] = ()
  budgets: tuple[int, ...] = ()
  seeds: int = 1
  forms: tuple[str, ...] = ()
  steps: int = 1
  json: str = ""

  def folders(self, default: tuple[str, ...], **options: Any) -> list[str]:
    """The folders of the codecs."""
    names = self.codecs or default
    return [str(pretrained.folder_of(name, **options)) for name in names]
