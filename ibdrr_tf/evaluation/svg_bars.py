"""Bars and matrices of an HTML page, as SVG; see `svg_charts`."""

import math
from collections.abc import Sequence

from ibdrr_tf.evaluation.html_page import Markup, join, tag

__all__ = [
  "WIDTH",
  "matrix_chart",
  "stacked_bars",
  "svg_figure",
  "text_width",
]

WIDTH = 760
_BAR = 20
_FONT = 12
_LETTER, _BOLD = 0.56, 0.62  # Mean width of a letter, in its size.


def text_width(text: str, *, is_bold: bool = False) -> float:
  """About how wide a text is, without measuring it in a browser."""
  return (_BOLD if is_bold else _LETTER) * _FONT * len(text)


def stacked_bars(
  rows: Sequence[tuple[str, Sequence[float], str]],
  parts: Sequence[tuple[str, int]],
  title: str,
  unit: str,
  digits: int = 0,
) -> Markup:
  """Horizontal bars of several parts, all to one scale.

  Args:
    rows: name of each bar, its parts, and what stands at its end.
    parts: name of each part, and number of its colour.
    title: what is seen, for those who do not see it.
    unit: of the values.
    digits: after the point.
  """
  left = 10 + max(text_width(row[0]) for row in rows)
  most = max((sum(values) for _, values, _ in rows), default=0) or 1
  right = WIDTH - 12 - max(text_width(row[2]) for row in rows)
  drawn = []
  for number, (name, values, end) in enumerate(rows):
    y, x = 4 + number * (_BAR + 6), left
    drawn.append(tag("text", name, x=left - 6, y=y + 14, class_="end"))
    for (part, color), value in zip(parts, values, strict=True):
      width = (right - left) * value / most
      if value:
        text = f"{name}, {part}: {value:,.{digits}f} {unit}"
        drawn.append(
          tag(
            "rect",
            tag("title", text),
            x=round(x, 2),
            y=y,
            width=round(max(width, 0.75), 2),
            height=_BAR,
            class_=f"part-{color}",
            data_tip=text,
          )
        )
      x += width
    drawn.append(tag("text", end, x=round(x + 6, 1), y=y + 14))
  height = 8 + len(rows) * (_BAR + 6)
  legend = [
    tag("li", tag("span", class_=f"swatch part-{color}"), part)
    for k, (part, color) in enumerate(parts)
    if any(values[k] for _, values, _ in rows)
  ]
  return join(
    [
      tag("ul", *legend, class_="legend"),
      svg_figure(title, height, *drawn, class_="bars"),
    ]
  )


def matrix_chart(
  values: Sequence[Sequence[float]],
  rows: Sequence[str],
  columns: Sequence[str],
  title: str,
) -> Markup:
  """Shares in percent, darker where they are greater.

  Args:
    values: by row and column.
    rows: names of the rows.
    columns: names of the columns.
    title: what is seen, for those who do not see it.
  """
  left = 12 + max(map(text_width, rows))
  side = min(64.0, (WIDTH - left - 8) / len(columns))
  high = max(18.0, min(34.0, side))
  drawn = []
  for i, name in enumerate(rows):
    y = 22 + i * high
    drawn.append(
      tag("text", name, x=left - 6, y=y + high / 2 + 4, class_="end")
    )
    for j, value in enumerate(values[i]):
      text = f"{name}, called {columns[j]}: {value:.1f} %"
      x = left + j * side
      drawn.append(
        tag(
          "g",
          tag(
            "rect",
            tag("title", text),
            x=round(x, 1),
            y=round(y, 1),
            width=round(side - 1, 1),
            height=round(high - 1, 1),
            fill_opacity=round(value / 100, 3),
            class_="right" if i == j else "wrong",
            data_tip=text,
          ),
          tag(
            "text",
            f"{value:.0f}",
            x=round(x + side / 2, 1),
            y=round(y + high / 2 + 4, 1),
            class_="middle high" if value > 55 else "middle",
          )
          if side >= 26
          else None,
          class_="cell",
        )
      )
  every = max(1, math.ceil(30 / side))
  heads = [
    tag(
      "text",
      columns[j],
      x=round(left + (j + 0.5) * side, 1),
      y=14,
      class_="middle",
    )
    for j in range(0, len(columns), every)
  ]
  height = 26 + len(rows) * high
  return svg_figure(title, height, *heads, *drawn, class_="matrix")


def svg_figure(
  title: str,
  height: float,
  *children: str | None,
  class_: str,
  **attributes: str,
) -> Markup:
  """A picture as wide as the page.

  Args:
    title: what is seen, for those who do not see it.
    height: of the picture, which is `WIDTH` wide.
    *children: its elements.
    class_: for the style sheet.
    **attributes: others of the picture, for the script.
  """
  return tag(
    "div",
    tag(
      "svg",
      tag("title", title),
      *children,
      viewBox=f"0 0 {WIDTH} {height:g}",
      role="img",
      aria_label=title,
      class_=class_,
      **attributes,
    ),
    class_="wide",
  )
