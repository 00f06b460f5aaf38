"""What every source of images looks like to the rest of the package."""

import dataclasses

from ibdrr_tf.data.examples import Examples

__all__ = ["Source"]


@dataclasses.dataclass(frozen=True)
class Source:
  """A labelled image set with a training and a test split.

  Attributes:
    name: how the user calls it, e.g. "cifar100".
    class_names: one name per class number.
    train: the training split; labels are class numbers.
    test: the test split.
  """

  name: str
  class_names: tuple[str, ...]
  train: Examples
  test: Examples
