"""`report.html` of several runs: curves that can be switched on and off."""

import statistics
from typing import Any

from ibdrr_tf.evaluation.chart_style import families_of, family_of
from ibdrr_tf.evaluation.comparison import kept_bytes
from ibdrr_tf.evaluation.html_page import Markup, page, section, tag
from ibdrr_tf.evaluation.svg_charts import (
  Point,
  Series,
  line_chart,
  scatter_chart,
)

__all__ = ["comparison_page"]

# Names in a row, headings, digits after the point.
_COLUMNS = (
  ("average_accuracy", "average without base phase %", 2),
  ("last_accuracy", "last phase %", 2),
  ("forgetting", "forgetting, points", 1),
  ("images", "images kept", 0),
  ("bytes_per_image", "bytes an image", 1),
)


def comparison_page(
  groups: dict[str, list[dict[str, Any]]], rows: list[dict[str, Any]]
) -> str:
  """The report of a comparison, as one HTML file.

  Args:
    groups: of `comparison.over_seeds`.
    rows: of `comparison.rows`.
  """
  runs = [run for group in groups.values() for run in group]
  known = [row for row in rows if row["average_accuracy"] is not None]
  bytes_ = None
  if known:
    kept, title = kept_bytes(known)
    bytes_ = section(
      "Accuracy against bytes",
      tag(
        "p",
        "Average without the base phase. Up and to the left is better: more "
        "right, fewer bytes.",
      ),
      scatter_chart(
        [_point(*pair) for pair in zip(known, kept, strict=True)],
        "Average accuracy, in percent, against megabytes that are kept",
        f"MB {title}",
      ),
    )
  return page(
    f"{len(groups)} methods on {runs[0]['dataset']}",
    tag("p", _subtitle(runs), class_="quiet"),
    _switches(rows),
    section(
      "Accuracy as classes are added",
      tag("p", "On all classes seen so far. Bands span the seeds of a method."),
      _curves(groups),
    ),
    bytes_,
    section("All figures", _table(rows)),
    _commands(runs),
  )


def _subtitle(runs: list[dict[str, Any]]) -> str:
  backbones = {
    f"{run['backbone']['name']}, {run['backbone']['parameters']:,} parameters"
    for run in runs
  }
  return f"{len(runs)} runs; {'; '.join(sorted(backbones))}."


def _curves(groups: dict[str, list[dict[str, Any]]]) -> Markup:
  longest = max((group[0]["phases"] for group in groups.values()), key=len)
  places = [phase["classes_seen"] for phase in longest]
  series = []
  for name, group in groups.items():
    columns = list(
      zip(
        *([p["accuracy"] for p in run["phases"]] for run in group), strict=False
      )
    )
    values = [statistics.fmean(column) for column in columns]
    several = len(group) > 1 and len(columns) == len(places)
    series.append(
      Series(
        name,
        values + [None] * (len(places) - len(values)),
        family_of(group[0]["method"]),
        low=[min(column) for column in columns] if several else (),
        high=[max(column) for column in columns] if several else (),
      )
    )
  # Ours come last, above the others.
  series.sort(key=lambda one: one.family.is_ours)
  return line_chart(
    series,
    places,
    "Accuracy of each method after each phase, in percent",
    "classes seen",
  )


def _point(row: dict[str, Any], count: float) -> Point:
  return Point(
    row["name"],
    count,
    row["average_accuracy"],
    row["deviations"].get("average_accuracy"),
    family_of(row["method"]),
  )


def _switches(rows: list[dict[str, Any]]) -> Markup:
  """A box for each run, by family, and a button for each family."""
  families = families_of(row["method"] for row in rows)
  buttons = [tag("button", "show all", type="button", data_show="all")]
  sets = []
  for family in families:
    title = f"only {family.title}"
    buttons.append(tag("button", title, type="button", data_show=family.key))
    boxes = (
      _box(row["name"], family.key)
      for row in sorted(rows, key=lambda row: -row["last_accuracy"])
      if family_of(row["method"]) == family
    )
    legend = tag("legend", family.title)
    sets.append(tag("fieldset", legend, *boxes, class_=f"choice {family.key}"))
  return tag(
    "form",
    tag("div", *buttons, class_="buttons"),
    *sets,
    autocomplete="off",
    aria_label="Methods to show",
  )


def _box(name: str, family: str) -> Markup:
  return tag(
    "label",
    tag(
      "input",
      type="checkbox",
      name="run",
      value=name,
      checked=True,
      data_family=family,
    ),
    tag("span", name),
  )


def _table(rows: list[dict[str, Any]]) -> Markup:
  kept, title = kept_bytes(rows)
  head = (
    *("method", *(heading for _, heading, _ in _COLUMNS)),
    *(f"bytes {title}", "to reference"),
  )
  body = []
  pairs = zip(rows, kept, strict=True)
  for row, count in sorted(pairs, key=lambda pair: -pair[0]["last_accuracy"]):
    cells = [_cell(row, name, digits) for name, _, digits in _COLUMNS]
    cells.append(f"{count:,.0f}")
    swatch = tag("span", class_="swatch")
    body.append(
      tag(
        "tr",
        tag("th", swatch, row["name"], scope="row"),
        *(tag("td", cell) for cell in (*cells, row["difference"] or "–")),
        class_=f"run {family_of(row['method']).key}",
        data_run=row["name"],
      )
    )
  return tag(
    "div",
    tag(
      "table",
      tag("thead", tag("tr", *(tag("th", cell, scope="col") for cell in head))),
      tag("tbody", *body),
    ),
    class_="wide",
  )


def _cell(row: dict[str, Any], name: str, digits: int) -> str:
  value = row[name]
  if value is None:
    return "–"
  deviation = row["deviations"].get(name)
  spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
  return f"{value:,.{digits}f}{spread}"


def _commands(runs: list[dict[str, Any]]) -> Markup:
  commands = dict.fromkeys(run["command"] for run in runs)
  return tag(
    "details",
    tag("summary", "Commands"),
    *(tag("pre", command) for command in commands),
  )
