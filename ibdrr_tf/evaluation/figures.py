"""Figures of a run, drawn without a screen."""

import io
from collections.abc import Iterable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import SymmetricalLogLocator

from ibdrr_tf.evaluation.chart_style import (
  Family,
  families_of,
  family_of,
  place_labels,
  spread_labels,
)
from ibdrr_tf.evaluation.comparison import kept_bytes

__all__ = [
  "Figure",
  "accuracy_against_bytes_figure",
  "confusion_figure",
  "image_rows",
  "phase_accuracy_figure",
  "to_png",
]

_LABEL_POINTS = 8.5
_LINE_POINTS = 11.5  # A label and the space between two.
_POINTS_PER_INCH = 72
# Width of a letter, on average, in a label's size.
_LETTER = 0.56


def phase_accuracy_figure(groups: dict[str, list[dict[str, Any]]]) -> Figure:
  """Accuracy on all classes seen against their number, as in the paper.

  Each curve has its name and its last accuracy at its end; its colour is that
  of its family of methods.

  Args:
    groups: contents of results.json by name, one curve each; of several, which
      differ in their seed, the mean, in a band from the lowest to the highest.
  """
  height = max(5.0, 1.2 + len(groups) * _LINE_POINTS / _POINTS_PER_INCH)
  figure, axes = _chart(height)
  ends = {}
  for name, group in groups.items():
    look = _look(family_of(group[0]["method"]))
    classes = [phase["classes_seen"] for phase in group[0]["phases"]]
    curves = np.array(
      [[phase["accuracy"] for phase in run["phases"]] for run in group]
    )
    mean = curves.mean(axis=0)
    axes.plot(classes, mean, label=name, marker="o", **look)
    if len(curves) > 1:
      axes.fill_between(
        classes,
        curves.min(axis=0),
        curves.max(axis=0),
        color=look["color"],
        alpha=0.2,
        linewidth=0,
      )
    axes.set_xticks(classes)
    ends[name] = (classes[-1], float(mean[-1]), look["color"])
  axes.set(
    xlabel="classes seen", ylabel="accuracy on all of them, %", ylim=(0, 100)
  )
  _label_ends(axes, ends, (height - 1.1) * _POINTS_PER_INCH)
  first = next(iter(groups.values()))[0]
  backbone = first["backbone"]
  axes.set_title(
    f"{first['dataset']}, {backbone['name']}, "
    f"{backbone['parameters'] / 1e6:.2f} M parameters"
  )
  _family_legend(figure, (group[0]["method"] for group in groups.values()))
  return figure


def _label_ends(
  axes: Axes, ends: dict[str, tuple[float, float, str]], points: float
) -> None:
  """Writes the name of each curve at its end.

  Args:
    axes: with accuracies from 0 to 100.
    ends: last x, last y and colour, by name.
    points: height of the axes.
  """
  gap = 100 * _LINE_POINTS / points
  rows = spread_labels([y for _, y, _ in ends.values()], gap, 0, 100)
  for (name, (x, y, color)), row in zip(ends.items(), rows, strict=True):
    axes.annotate(
      f"{y:.1f}  {name}",
      (x, y),
      (1.05, row),
      textcoords=("axes fraction", "data"),
      arrowprops={
        "arrowstyle": "-",
        "color": color,
        "linewidth": 0.6,
        "relpos": (0, 0.5),
        "shrinkA": 2,
        "shrinkB": 4,
      },
      color=color,
      fontsize=_LABEL_POINTS,
      verticalalignment="center",
      annotation_clip=False,
    )


def accuracy_against_bytes_figure(rows: list[dict[str, Any]]) -> Figure:
  """Average accuracy without the base phase against all bytes needed.

  Args:
    rows: of `comparison.rows`, one point each; over several seeds, with a line
      of one standard deviation up and down.
  """
  figure, axes = _chart(5.5)
  known = [row for row in rows if row["average_accuracy"] is not None]
  points = {}
  kept, title = kept_bytes(known)
  for row, count in zip(known, kept, strict=True):
    # The smaller points above, or they would not be seen.
    look = {**_look(family_of(row["method"])), "linestyle": "", "zorder": 3}
    look["zorder"] += not family_of(row["method"]).is_ours
    axes.errorbar(
      count / 1e6,
      row["average_accuracy"],
      yerr=row["deviations"].get("average_accuracy"),
      marker="o",
      label=row["name"],
      **look,
    )
    points[row["name"]] = (count / 1e6, row["average_accuracy"], look["color"])
  _scale_bytes(axes, [x for x, _, _ in points.values()])
  axes.set(
    xlabel=f"MB {title} (less is better)",
    ylabel="average accuracy without base phase, %",
    ylim=(0, 100),
  )
  _family_legend(figure, (row["method"] for row in known))
  _label_points(figure, axes, points)
  return figure


def _scale_bytes(axes: Axes, megabytes: list[float]) -> None:
  """A logarithmic axis that also shows 0: some methods keep nothing."""
  kept = [value for value in megabytes if value > 0] or [1.0]
  least = 10.0 ** np.floor(np.log10(min(kept)))
  axes.set_xscale("symlog", linthresh=least, linscale=0.4, subs=(2, 5))
  axes.xaxis.set_major_locator(
    SymmetricalLogLocator(base=10, linthresh=least, subs=(1, 2, 5))
  )
  axes.xaxis.set_major_formatter("{x:g}")
  axes.set_xlim(-0.1 * least, 2 * max(kept))


def _label_points(
  figure: Figure, axes: Axes, points: dict[str, tuple[float, float, str]]
) -> None:
  """Writes the name of each point beside it: x, y and colour, by name."""
  FigureCanvasAgg(figure).draw()  # Now the axes have their place.
  pixel = figure.dpi / _POINTS_PER_INCH
  places = [axes.transData.transform(point[:2]) for point in points.values()]
  widths = [
    _LETTER * _LABEL_POINTS * pixel * len(name) + 4 * pixel for name in points
  ]
  box = axes.get_window_extent()
  labels = place_labels(
    places,
    widths,
    _LINE_POINTS * pixel,
    (box.x0, box.y0, box.x1, box.y1),
    4 * pixel,
  )
  for (name, (x, y, color)), width, (left, row), (at, height) in zip(
    points.items(), widths, labels, places, strict=True
  ):
    end = 0 if left > at else 1 if left + width < at else 0.5
    axes.annotate(
      name,
      (x, y),
      axes.transData.inverted().transform((left + end * width, row)),
      color=color,
      fontsize=_LABEL_POINTS,
      horizontalalignment={0: "left", 1: "right"}.get(end, "center"),
      verticalalignment="center",
      arrowprops={
        "arrowstyle": "-",
        "color": color,
        "linewidth": 0.6,
        "relpos": (end, 0.5),
        "shrinkA": 0,
        "shrinkB": 4,
      }
      if abs(row - height) > 0.6 * _LINE_POINTS * pixel
      else None,
    )


def _look(family: Family) -> dict[str, Any]:
  """How a family's curves and points are drawn: ours above the others."""
  look = {
    "color": family.light,
    "linewidth": 2.0 if family.is_ours else 1.3,
    "markersize": 5 if family.is_ours else 3.5,
    "zorder": 4 if family.is_ours else 3,
  }
  return {**look, "linestyle": "--"} if family.key == "bounds" else look


def _family_legend(figure: Figure, methods: Iterable[str]) -> None:
  """Names the families, if there are several."""
  families = families_of(methods)
  if len(families) < 2:
    return
  lines = [Line2D([], [], marker="o", **_look(family)) for family in families]
  figure.legend(
    lines,
    [family.title for family in families],
    loc="outside lower center",
    ncols=len(families),
    frameon=False,
    fontsize=_LABEL_POINTS,
  )


def _chart(height: float) -> tuple[Figure, Axes]:
  """An empty figure."""
  figure = Figure(figsize=(9, height), layout="constrained")
  axes = figure.add_subplot()
  axes.grid(alpha=0.3)
  axes.spines[["top", "right"]].set_visible(False)
  return figure, axes


def confusion_figure(confusion: np.ndarray, boundaries: list[int]) -> Figure:
  """A confusion matrix with lines between phases.

  Args:
    confusion: int [classes, classes], true class by row.
    boundaries: classes seen after each phase.
  """
  shares = confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1)
  figure = Figure(figsize=(6, 5), layout="constrained")
  axes = figure.add_subplot()
  image = axes.imshow(shares, vmin=0, vmax=1, cmap="viridis")
  for boundary in boundaries[:-1]:
    axes.axhline(boundary - 0.5, color="white", linewidth=0.7)
    axes.axvline(boundary - 0.5, color="white", linewidth=0.7)
  axes.set(xlabel="predicted", ylabel="true", title="share of a class")
  figure.colorbar(image)
  return figure


def image_rows(rows: dict[str, np.ndarray], scale: float = 1.0) -> Figure:
  """Rows of images below each other, such as originals and reconstructions.

  Args:
    rows: title of each row to uint8 [n, h, w, 3]; sizes may differ by row.
    scale: inches of an image's width.
  """
  most = max(len(images) for images in rows.values())
  figure = Figure(
    figsize=(scale * most, (scale + 0.25) * len(rows)), layout="constrained"
  )
  grid = figure.subplots(len(rows), most, squeeze=False)
  for axes, (title, images) in zip(grid, rows.items(), strict=True):
    axes[0].set_title(title, loc="left", fontsize=8)
    for place in axes:
      place.axis("off")
    for place, image in zip(axes, images, strict=False):
      place.imshow(image, interpolation="nearest")
  return figure


def to_png(figure: Figure) -> bytes:
  """Draws a figure."""
  buffer = io.BytesIO()
  FigureCanvasAgg(figure).print_png(buffer)
  return buffer.getvalue()
