"""Figures of a run, drawn without a screen."""

import io
import itertools
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import SymmetricalLogLocator

__all__ = [
  "Figure",
  "accuracy_against_bytes_figure",
  "confusion_figure",
  "image_rows",
  "phase_accuracy_figure",
  "to_png",
]

# Each run of many its own: colours first, then markers.
_STYLES = matplotlib.cycler(marker=["o", "s", "^", "D"]) * matplotlib.cycler(
  color=matplotlib.color_sequences["tab10"]
)


def phase_accuracy_figure(groups: dict[str, list[dict[str, Any]]]) -> Figure:
  """Accuracy on all classes seen against their number, as in the paper.

  Args:
    groups: contents of results.json by name, one curve each; of several, which
      differ in their seed, the mean, in a band from the lowest to the highest.
  """
  figure, axes = _chart()
  lasts = {
    name: np.mean([run["last_accuracy"] for run in group])
    for name, group in groups.items()
  }
  styles = _styles(lasts)
  # The legend then lists them as the curves end, from above.
  for name in styles:
    classes = [phase["classes_seen"] for phase in groups[name][0]["phases"]]
    curves = np.array(
      [[phase["accuracy"] for phase in run["phases"]] for run in groups[name]]
    )
    axes.plot(classes, curves.mean(axis=0), label=name, **styles[name])
    if len(curves) > 1:
      axes.fill_between(
        classes,
        curves.min(axis=0),
        curves.max(axis=0),
        color=styles[name]["color"],
        alpha=0.2,
      )
    axes.set_xticks(classes)
  axes.set(
    xlabel="classes seen", ylabel="accuracy on all of them, %", ylim=(0, 100)
  )
  first = next(iter(groups.values()))[0]
  backbone = first["backbone"]
  axes.set_title(
    f"{first['dataset']}, {backbone['name']}, "
    f"{backbone['parameters'] / 1e6:.2f} M parameters"
  )
  figure.legend(loc="outside right center")
  return figure


def accuracy_against_bytes_figure(rows: list[dict[str, Any]]) -> Figure:
  """Average accuracy without the base phase against all bytes needed.

  Args:
    rows: of `comparison.rows`, one point each; over several seeds, with a line
      of one standard deviation up and down.
  """
  figure, axes = _chart()
  styles = _styles({row["name"]: row["last_accuracy"] for row in rows})
  known = [row for row in rows if row["average_accuracy"] is not None]
  for row in sorted(known, key=lambda row: -row["average_accuracy"]):
    axes.errorbar(
      (row.get("next_phase_bytes") or row["total_bytes"]) / 1e6,
      row["average_accuracy"],
      yerr=row["deviations"].get("average_accuracy"),
      linestyle="",
      label=row["name"],
      **styles[row["name"]],
    )
  # Some methods keep nothing, which a logarithm cannot show.
  axes.set_xscale("symlog", linthresh=1, subs=(2, 5))
  axes.xaxis.set_major_locator(
    SymmetricalLogLocator(base=10, linthresh=1, subs=(1, 2, 5))
  )
  axes.xaxis.set_major_formatter("{x:g}")
  axes.set_xlim(left=0)
  axes.set(
    xlabel="MB that the next phase needs, models included",
    ylabel="average accuracy without base phase, %",
    ylim=(0, 100),
  )
  figure.legend(loc="outside right center")
  return figure


def _styles(lasts: dict[str, float]) -> dict[str, dict[str, Any]]:
  """Colour and marker of each run, the best first.

  They are the same in all figures of a comparison, and those of runs that end
  near each other differ.

  Args:
    lasts: accuracy after the last phase, by name.
  """
  names = sorted(lasts, key=lambda name: -lasts[name])
  return dict(zip(names, itertools.cycle(_STYLES), strict=False))


def _chart() -> tuple[Figure, Axes]:
  """An empty figure with room beside it for a legend of many runs."""
  figure = Figure(figsize=(9, 5), layout="constrained")
  axes = figure.add_subplot()
  axes.grid(alpha=0.3)
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
