"""What a new learner keeps images as, unless it is told.

Codes need a codec, whose bytes count; contact sheets need none. Codes get
coarser without their image, while a sheet loses each time it is encoded again.
So which of them teaches a classifier more depends on the byte budget and on how
many images will share it. The choice is that of the nearest measurement: the
same images, learned step by step under the same budget. None of this needs
TensorFlow.
"""

import dataclasses
import math

import ml_collections

__all__ = ["AUTO", "MEASURED", "Measured", "choose", "nearest"]

AUTO = "auto"
_SHEETS, _CODES, _CODEC = "sheet_replay", "drr", "tiny_imagenet"
# Points that codes must be ahead by: two seeds differ by about as much.
_LEAD = 1.0


@dataclasses.dataclass(frozen=True)
class Measured:
  """One budget, with the accuracies of both memories.

  Attributes:
    memory_bytes: budget of images and codec.
    images: that shared it in the end.
    sheets: accuracy with contact sheets, %.
    codes: accuracy with codes, %.
  """

  memory_bytes: int
  images: int
  sheets: float
  codes: float

  @property
  def gain(self) -> float:
    """By how many points codes are ahead."""
    return self.codes - self.sheets


# CIFAR-100 in steps, images of 32 pixels, accuracy on test images;
# results/accuracy.md and results/README.md have commands and seeds.
MEASURED = (
  Measured(1_000_000, 10_000, sheets=68.40, codes=68.64),
  Measured(2_600_000, 10_000, sheets=75.30, codes=74.13),
  Measured(4_000_000, 50_000, sheets=58.30, codes=61.28),
)


def nearest(
  memory_bytes: int, images: int, measured: tuple[Measured, ...] = MEASURED
) -> Measured:
  """The measurement that is nearest, by ratios of bytes and of images.

  Args:
    memory_bytes: the budget, 1 or more.
    images: how many will share it, 1 or more.
    measured: what to look through.
  """

  def distance(row: Measured) -> float:
    return math.hypot(
      math.log(row.memory_bytes / memory_bytes), math.log(row.images / images)
    )

  return min(measured, key=distance)


def choose(config: ml_collections.ConfigDict) -> str | None:
  """Replaces "auto" in `config.method` and `config.codec`.

  Whoever names a codec wants codes; whoever names a method that needs a codec
  gets the smallest one.

  Args:
    config: of a new learner, changed in place.

  Returns:
    What was chosen and why, for people; None if the method was given.
  """
  is_open, names_codec = config.method == AUTO, config.codec != AUTO
  if not names_codec:
    config.codec = _CODEC
  if not is_open:
    return None
  if names_codec:
    config.method = _CODES
    return f"bit-strings ({_CODES}), because a codec is named"
  budget, images = config.memory.total_bytes, config.memory.expected_images
  config.method = _SHEETS
  if not budget:
    return f"contact sheets ({_SHEETS}), because there is no byte budget"
  if not images:
    return (
      f"contact sheets ({_SHEETS}), because it is not said how many images are "
      f"expected"
    )
  row = nearest(budget, images)
  told = (
    f"with {row.memory_bytes:,} bytes for {row.images:,} images of CIFAR-100, "
    f"codes gave {row.codes:.1f} % and sheets {row.sheets:.1f} %"
  )
  if row.gain >= _LEAD:
    config.method = _CODES
    return f"bit-strings ({_CODES}, codec {_CODEC}): {told}"
  return f"contact sheets ({_SHEETS}): {told}"
