"""What all charts share: families of methods, and labels that do not overlap.

Methods are coloured by family, not one by one: a reader sees at once which
curves keep codes, compressed images, raw exemplars or no images. The name of a
curve stands at its end.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from ibdrr_tf.choices import METHOD_GROUPS

__all__ = [
  "ALL_FAMILIES",
  "Family",
  "families_of",
  "family_of",
  "place_labels",
  "spread_labels",
]


@dataclasses.dataclass(frozen=True)
class Family:
  """Methods that keep the same kind of thing.

  Attributes:
    key: name of its colour in style sheets.
    title: for a legend.
    groups: keys of `choices.METHOD_GROUPS`.
    light: colour on a light ground.
    dark: colour on a dark ground.
    is_ours: whether the methods are those that this package is about.
  """

  key: str
  title: str
  groups: tuple[str, ...]
  light: str
  dark: str
  is_ours: bool = False


_KNOWN = (
  Family("codes", "codes (ours)", ("ours",), "#c2185b", "#ff5c93", True),
  Family(
    "images",
    "compressed images",
    ("compression",),
    "#4a7ba6",
    "#7fb0da",
  ),
  Family("exemplars", "raw exemplars", ("exemplars",), "#6b8f4e", "#9cc27c"),
  Family(
    "features",
    "features or old network",
    ("features and generators", "regularisation"),
    "#9a7b3c",
    "#cfae6b",
  ),
  Family("bounds", "all images, none", ("bounds",), "#6e6e6e", "#a8a8a8"),
)
# Methods of plugins.
_OTHER = Family("other", "plugins", (), "#7a6aa8", "#b3a4e0")
ALL_FAMILIES = (*_KNOWN, _OTHER)


def family_of(method: str) -> Family:
  """The family of a method; those of plugins have one of their own."""
  for family in _KNOWN:
    if any(method in METHOD_GROUPS[group] for group in family.groups):
      return family
  return _OTHER


def families_of(methods: Iterable[str]) -> list[Family]:
  """The families of some methods, each once, ours first."""
  present = {family_of(method) for method in methods}
  return [family for family in ALL_FAMILIES if family in present]


def spread_labels(
  wanted: Sequence[float], gap: float, low: float, high: float
) -> list[float]:
  """Moves labels along a line as little as possible until none overlap.

  The sum of squared shifts is the least that keeps their order (isotonic
  regression by pooling adjacent violators).

  Args:
    wanted: where the centres would be best.
    gap: least distance of two centres.
    low: least position of a centre.
    high: greatest position; exceeded if there is no room for all labels.

  Returns:
    Positions in the order of `wanted`.
  """
  order = sorted(range(len(wanted)), key=lambda k: wanted[k])
  blocks: list[list[float]] = []  # Sum and number of pooled positions.
  for rank, k in enumerate(order):
    blocks.append([wanted[k] - rank * gap, 1])
    while len(blocks) > 1 and (
      blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]
    ):
      total, count = blocks.pop()
      blocks[-1][0] += total
      blocks[-1][1] += count
  top = max(low, high - gap * (len(wanted) - 1))
  placed = [0.0] * len(wanted)
  ranks = iter(enumerate(order))
  for total, count in blocks:
    start = min(max(total / count, low), top)
    for _ in range(int(count)):
      rank, k = next(ranks)
      placed[k] = start + rank * gap
  return placed


def place_labels(
  points: Sequence[tuple[float, float]],
  widths: Sequence[float],
  height: float,
  bounds: tuple[float, float, float, float],
  radius: float = 5.0,
) -> list[tuple[float, float]]:
  """Finds room for a label beside each point of a scatter chart.

  Each label takes the nearest place, right or left of its point, above or
  below, where it covers neither points nor labels that have a place already.

  Args:
    points: in pixels.
    widths: of the labels.
    height: of each label.
    bounds: least x, least y, greatest x, greatest y.
    radius: of a point.

  Returns:
    For each point the left end and the middle height of its label.
  """
  boxes = [(x - radius, y - radius, x + radius, y + radius) for x, y in points]
  placed: list[tuple[float, float]] = [(0.0, 0.0)] * len(points)
  # Short labels find room near their points; long ones must look for it.
  for k in sorted(range(len(points)), key=lambda k: widths[k]):
    best, least = points[k], math.inf
    for away, place in _places(points[k], widths[k], height, radius, bounds):
      if away >= least:
        break  # The others are farther away still.
      box = _box(place, widths[k], height)
      cost = away + 1e3 * sum(_overlap(box, other) for other in boxes)
      if cost < least:
        # A line from point to label should not strike through other labels.
        cost += 10 * _struck(points[k], box, boxes[len(points) :])
      if cost < least:
        best, least = place, cost
    placed[k] = best
    boxes.append(_box(best, widths[k], height))
  return placed


def _places(
  point: tuple[float, float],
  width: float,
  height: float,
  radius: float,
  bounds: tuple[float, float, float, float],
) -> list[tuple[float, tuple[float, float]]]:
  """Places of a label within the bounds, by their distance to the point."""
  x, y = point
  right, left = x + radius + 3, x - radius - 3 - width
  columns = (
    *(right, left, x - width / 2),
    *(right + 2 * height, left - 2 * height),
  )
  rows = int((bounds[3] - bounds[1]) / height * 4)
  found = []
  for number in range(-rows, rows + 1):
    row = y + number * height / 4
    for column in columns:
      box = _box((column, row), width, height)
      if _overlap(box, bounds) < width * height - 1e-6:
        continue
      # Above and below a point, a label is in the way of more others.
      aside = max(box[0] - x, x - box[2], 0.0) or height
      found.append((math.hypot(aside, row - y), (column, row)))
  return sorted(found, key=lambda one: one[0])  # Right before left.


def _box(
  place: tuple[float, float], width: float, height: float
) -> tuple[float, float, float, float]:
  x, y = place
  return x, y - height / 2, x + width, y + height / 2


def _struck(
  point: tuple[float, float],
  box: tuple[float, float, float, float],
  others: Sequence[tuple[float, float, float, float]],
  samples: int = 16,
) -> int:
  """How much of a line from a point to a box lies on other boxes."""
  x = min(max(point[0], box[0]), box[2])
  y = (box[1] + box[3]) / 2
  count = 0
  for k in range(samples):
    share = k / samples
    at = (
      point[0] + share * (x - point[0]),
      point[1] + share * (y - point[1]),
    )
    count += sum(
      left <= at[0] <= right and low <= at[1] <= high
      for left, low, right, high in others
    )
  return count


def _overlap(
  one: tuple[float, float, float, float],
  other: tuple[float, float, float, float],
) -> float:
  """Area that two rectangles share."""
  width = min(one[2], other[2]) - max(one[0], other[0])
  height = min(one[3], other[3]) - max(one[1], other[1])
  return max(width, 0.0) * max(height, 0.0)
