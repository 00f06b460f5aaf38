"""Charts of an HTML page, as SVG that can be read without a script.

Points, bars and cells carry a `data-tip`, which the page's script shows where
the pointer is; a `title` says the same to those who have no pointer. Whatever
belongs to a run is in a group with `data-run`, so that it can be switched off.
"""

import dataclasses
import math
from collections.abc import Sequence

from ibdrr_tf.evaluation.chart_style import (
  Family,
  place_labels,
  spread_labels,
)
from ibdrr_tf.evaluation.html_page import Markup, tag
from ibdrr_tf.evaluation.svg_bars import WIDTH, svg_figure, text_width

__all__ = [
  "Point",
  "Series",
  "line_chart",
  "scatter_chart",
]

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 16, 12, 42
_LINE = 15
_TICKS = (0, 20, 40, 60, 80, 100)


@dataclasses.dataclass(frozen=True)
class Series:
  """A curve.

  Attributes:
    name: at its end.
    values: in percent; None where there is no value.
    family: its colour.
    low: lower end of a band around it; empty without a band.
    high: upper end.
    weight: "strong", "faint" for a curve that only accompanies another, or ""
      for what its family has.
  """

  name: str
  values: Sequence[float | None]
  family: Family
  low: Sequence[float] = ()
  high: Sequence[float] = ()
  weight: str = ""


@dataclasses.dataclass(frozen=True)
class Point:
  """A point of a scatter chart.

  Attributes:
    name: beside it.
    bytes: of its x axis.
    accuracy: of its y axis, in percent.
    deviation: of several seeds; None without.
    family: its colour.
  """

  name: str
  bytes: float
  accuracy: float
  deviation: float | None
  family: Family


def line_chart(
  series: Sequence[Series], places: Sequence[float], title: str, x_title: str
) -> Markup:
  """Curves of accuracies, with their names at their ends.

  Args:
    series: the curves; those of one name in a page are switched together.
    places: x of each value.
    title: what is seen, for those who do not see it.
    x_title: below the axis.
  """
  longest = max(len(one.name) for one in series) + 6
  right = WIDTH - _RIGHT - text_width("0" * longest) - 24
  height = max(340, _TOP + _BOTTOM + _LINE * len(series))
  bottom = height - _BOTTOM
  span = max(places[-1] - places[0], 1)
  inner = right - _LEFT - 16

  def at(place: float) -> float:
    return _LEFT + 8 + inner * (place - places[0]) / span

  def up(value: float) -> float:
    return bottom - (bottom - _TOP) * value / 100

  marks = [
    tag("text", f"{p:g}", x=at(p), y=bottom + 16, class_="middle")
    for p in _some(places)
  ]
  last = [
    next((v for v in one.values[::-1] if v is not None), 0.0) for one in series
  ]
  rows = spread_labels([up(v) for v in last], _LINE, _TOP + 6, bottom - 4)
  curves = [
    _curve(one, places, at, up, x_title, (right + 22, row))
    for one, row in zip(series, rows, strict=True)
  ]
  return svg_figure(
    title,
    height,
    _accuracy_axis(up, right),
    *marks,
    _x_title(x_title, (_LEFT + right) / 2, height),
    tag("line", class_="guide", y1=_TOP, y2=bottom, x1=0, x2=0),
    *curves,
    class_="chart lines",
    data_x=x_title,
  )


def _curve(one, places, at, up, x_title, label) -> Markup:
  """A curve, its band, its points and its name."""
  known = [
    (at(p), up(v), p, v)
    for p, v in zip(places, one.values, strict=True)
    if v is not None
  ]
  band = None
  if one.low:
    upper = [
      f"{at(p):.1f},{up(v):.1f}" for p, v in zip(places, one.high, strict=True)
    ]
    lower = [
      f"{at(p):.1f},{up(v):.1f}" for p, v in zip(places, one.low, strict=True)
    ]
    band = tag("polygon", points=" ".join(upper + lower[::-1]), class_="band")
  path = "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in known)
  points = [
    tag(
      "circle",
      tag("title", f"{one.name}: {v:.2f} % at {p:g} {x_title}"),
      cx=round(x, 1),
      cy=round(y, 1),
      r=4 if _weight(one.family, one.weight) == "strong" else 3,
      data_x=f"{p:g}",
      data_value=f"{v:.2f}",
    )
    for x, y, p, v in known
  ]
  x, y = known[-1][:2]
  return tag(
    "g",
    band,
    tag("path", d=path, class_="curve"),
    *points,
    tag(
      "path",
      d=f"M{x + 5:.1f},{y:.1f}L{label[0] - 3:.1f},{label[1]:.1f}",
      class_="leader",
    ),
    tag(
      "text",
      f"{known[-1][3]:.1f}  {one.name}",
      x=round(label[0], 1),
      y=round(label[1] + 4, 1),
      class_="name",
    ),
    class_=f"run {one.family.key} {_weight(one.family, one.weight)}",
    data_run=one.name,
  )


def scatter_chart(points: Sequence[Point], title: str, x_title: str) -> Markup:
  """Accuracy against bytes, on a logarithmic axis that also has 0.

  Args:
    points: the runs.
    title: what is seen, for those who do not see it.
    x_title: below the axis, which is in MB.
  """
  height = 400
  right, bottom = WIDTH - _RIGHT, height - _BOTTOM
  kept = [point.bytes for point in points if point.bytes > 0] or [1e6]
  least = math.floor(math.log10(min(kept)))
  most = math.log10(2 * max(kept))
  # Nothing at all has a place of its own, left of the logarithmic part.
  start = _LEFT + (70 if any(not point.bytes for point in points) else 10)

  def at(count: float) -> float:
    if count <= 0:
      return _LEFT + 20
    share = (math.log10(count) - least) / (most - least)
    return start + (right - 30 - start) * share

  def up(value: float) -> float:
    return bottom - (bottom - _TOP) * value / 100

  ticks = [0.0] if any(not point.bytes for point in points) else []
  for exponent in range(least, math.ceil(most) + 1):
    ticks += [n * 10.0**exponent for n in (1, 2, 5)]
  ticks = [t for t in ticks if t == 0 or least <= math.log10(t) <= most]
  marks = [
    tag("text", f"{t / 1e6:g}", x=at(t), y=bottom + 16, class_="middle")
    for t in ticks
  ]
  places = [(at(point.bytes), up(point.accuracy)) for point in points]
  widths = [
    text_width(point.name, is_bold=point.family.is_ours) + 4 for point in points
  ]
  labels = place_labels(
    places, widths, _LINE, (_LEFT, _TOP, right, bottom), radius=6
  )
  return svg_figure(
    title,
    height,
    _accuracy_axis(up, right),
    *marks,
    _x_title(x_title, (_LEFT + right) / 2, height),
    *(
      _dot(point, place, label, width, up)
      for point, place, label, width in zip(
        points, places, labels, widths, strict=True
      )
    ),
    class_="chart",
  )


def _dot(point, place, label, width, up) -> Markup:
  """A point, its deviation and its name."""
  (x, y), (left, row) = place, label
  spread = ""
  bar = None
  if point.deviation is not None:
    spread = f" ± {point.deviation:.2f}"
    ends = (up(point.accuracy + sign * point.deviation) for sign in (1, -1))
    y1, y2 = ends
    bar = tag("line", x1=x, x2=x, y1=y1, y2=y2, class_="leader")
  text = (
    f"{point.name}: {point.accuracy:.2f}{spread} % with "
    f"{point.bytes / 1e6:.3f} MB"
  )
  is_left = left + width < x
  near = left if left > x else left + width if is_left else x
  leader = None
  if abs(row - y) > _LINE * 0.6:
    leader = tag(
      "path", d=f"M{x:.1f},{y:.1f}L{near:.1f},{row:.1f}", class_="leader"
    )
  return tag(
    "g",
    bar,
    leader,
    tag(
      "circle",
      tag("title", text),
      cx=round(x, 1),
      cy=round(y, 1),
      r=6 if point.family.is_ours else 4.5,
      tabindex=0,
      data_tip=text,
    ),
    tag(
      "text",
      point.name,
      x=round(left + width if is_left else left, 1),
      y=round(row + 4, 1),
      class_="name end" if is_left else "name",
    ),
    class_=f"run {point.family.key} {_weight(point.family)}",
    data_run=point.name,
  )


def _accuracy_axis(up, right: float) -> Markup:
  lines = [
    tag("line", x1=_LEFT, x2=round(right, 1), y1=up(t), y2=up(t), class_="grid")
    for t in _TICKS
  ]
  texts = [
    tag(
      "text",
      f"{t} %" if t == 100 else str(t),
      x=_LEFT - 6,
      y=up(t) + 4,
      class_="end",
    )
    for t in _TICKS
  ]
  return tag("g", *lines, *texts)


def _x_title(text: str, x: float, height: float) -> Markup:
  return tag("text", text, x=round(x, 1), y=height - 8, class_="middle")


def _some(places: Sequence[float], most: int = 12) -> Sequence[float]:
  """Not more places than have room below an axis; the last one among them."""
  step = math.ceil(len(places) / most)
  return places[::-1][::step][::-1]


def _weight(family: Family, weight: str = "") -> str:
  return weight or ("strong" if family.is_ours else "")
