"""Several runs in one table: one row each, seeds of one taken together.

Runs whose names say that they differ in their seed or class order make one row
of means and standard deviations: `drr-seed-1` and `drr-order-7-seed-1` join
`drr`. Each row is compared with a reference row, pair by pair: see `paired`.
"""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import report
from ibdrr_tf.evaluation.ledger import FULL_SET, bytes_per_image
from ibdrr_tf.evaluation.paired import compare_groups

__all__ = [
  "REFERENCE",
  "check_alike",
  "check_orders",
  "kept_bytes",
  "markdown",
  "over_seeds",
  "rows",
]

REFERENCE = "drr"
_BOUND = "upper_bound"

# Names in comparison.json, headings of the table, digits after the point.
_COLUMNS = (
  ("name", "run", None),
  ("seeds", "seeds", None),
  ("average_accuracy", "average without base phase %", 2),
  ("average_accuracy_with_base", "average with base phase %", 2),
  ("last_accuracy", "last phase %", 2),
  ("difference", "difference to reference, points", None),
  ("forgetting", "forgetting, points", 2),
  ("base_drop", "drop on base classes, points", 2),
  ("intransigence", "intransigence, points", 2),
  ("images_bytes", "bytes of images and what decodes them", 0),
  ("next_phase_bytes", "bytes that the next phase needs", 0),
  ("total_bytes", "bytes on the disk, models included", 0),
  ("images", "images kept", 0),
  ("bytes_per_image", "bytes an image, as stored", 1),
  (
    "bytes_per_image_spread",
    f"bytes an image, models spread over {FULL_SET:,}",
    1,
  ),
  ("seconds", "seconds of training", 0),
)

_ACCURACIES = (
  "average_accuracy",
  "average_accuracy_with_base",
  "last_accuracy",
  "forgetting",
  "base_drop",
)
# What runs of one table must have in common, beside the phases, and how an
# error calls it.
_ALIKE = (
  ("evaluated_on", "evaluated on {} images"),
  ("image_size", "images of {} pixels a side"),
  ("class_names", "class names with the digest {}"),
)
# With the same class order, these as well.
_ALIKE_IN_ORDER = (
  ("evaluated_images", "{} evaluated images"),
  ("training_images", "{} training images"),
)


def check_alike(runs: dict[str, dict[str, Any]]) -> None:
  """Refuses runs, by name, of different data, classes or phases.

  What the record of an older version does not say is not compared.
  """
  for sentence in _differences(runs):
    raise UserError(
      f"{sentence}: only finished runs of the same data with the same phases "
      f"can be compared."
    )


def _differences(runs: dict[str, dict[str, Any]]) -> list[str]:
  """How runs differ from the first, one clause each."""
  found = []
  first, *others = runs
  for name in others:
    rivals = [n for n in runs if _order(runs[n]) == _order(runs[name])]
    for rival, fields in ((first, _ALIKE), (rivals[0], _ALIKE_IN_ORDER)):
      pair = [(n, runs[n]) for n in (rival, name)]
      texts = _texts(pair, fields)
      if texts:
        found.append(", ".join(texts))
        break
  return found


def _texts(
  pair: list[tuple[str, dict[str, Any]]], fields: tuple[tuple[str, str], ...]
) -> list[str]:
  """What two runs differ in, as a clause about each; nothing if they do not."""
  seen = [
    (run["dataset"], [phase["classes_seen"] for phase in run["phases"]])
    for _, run in pair
  ]
  if seen[0] != seen[1]:
    return [
      f"{name} has learned {classes} classes of {dataset} in its phases"
      for (name, _), (dataset, classes) in zip(pair, seen, strict=True)
    ]
  for field, text in fields:
    values = [run.get("data", {}).get(field) for _, run in pair]
    if None not in values and values[0] != values[1]:
      return [
        f"{name} has {text.format(value)}"
        for (name, _), value in zip(pair, values, strict=True)
      ]
  return []


def check_orders(groups: dict[str, list[dict[str, Any]]]) -> None:
  """Refuses rows that are means over different class orders.

  Args:
    groups: of `over_seeds`; of runs, or of configurations to run.
  """
  orders = {
    name: sorted({_order(run) for run in group} - {None})
    for name, group in groups.items()
  }
  first, *others = [name for name, known in orders.items() if known] or [None]
  for name in others:
    if orders[name] != orders[first]:
      texts = (
        f"{n} has learned classes in the order {' and '.join(orders[n])}"
        for n in (first, name)
      )
      raise UserError(
        f"{', '.join(texts)}: only runs of the same class orders can be "
        f"compared."
      )


def _order(run: dict[str, Any]) -> str | None:
  """The class order of a run or of a configuration; None if it is unknown."""
  return (run.get("data") or {}).get("class_order")


def over_seeds(
  runs: dict[str, dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
  """Brings together what differs in its seed or class order.

  Args:
    runs: contents of results.json, by the name that a run has here. One that is
      called NAME-seed-N, N being its seed, belongs to NAME; so does
      NAME-order-M-seed-N, M being its class order.

  Returns:
    Runs by name, one or more each, by seed.
  """
  groups = {}
  for name, run in runs.items():
    shared = name.removesuffix(f"-seed-{run['seed']}")
    shared = shared.removesuffix(f"-order-{_order(run)}")
    group = groups.setdefault(shared, [])
    if any(_pair(run) == _pair(other) for other in group):
      raise UserError(
        f"there are two runs {shared} of seed {run['seed']}: leave one out, or "
        f"give {name} another name."
      )
    if group and run["method"] != group[0]["method"]:
      raise UserError(
        f"{name} is of {run['method']} and other runs {shared} are of "
        f"{group[0]['method']}: give one of them another name."
      )
    group.append(run)
  return {name: sorted(group, key=_pair) for name, group in groups.items()}


def _pair(run: dict[str, Any]) -> tuple[str, int]:
  return str(_order(run)), run["seed"]


def rows(
  groups: dict[str, list[dict[str, Any]]], reference: str = REFERENCE
) -> list[dict[str, Any]]:
  """What is compared, of each run or of the same run with several seeds.

  Args:
    groups: of `over_seeds`.
    reference: name of the row that all others are compared with; there need
      not be one.

  Returns:
    One dict a name; figures are means over `seeds`, and those of accuracy have
    their standard deviations in `deviations` where there are several seeds.
    `bytes_per_image` is all that is kept after the last phase, models included,
    by the images that can be replayed, and once more with the models spread
    over a full set; None if there are none. `paired` says how the row differs
    from the reference, see `Paired`. `intransigence` is the mean distance to
    the accuracy of `upper_bound` over the phases after the base phase, and
    `intransigence_by_phase` that of each phase; None without such a row.
  """
  result = []
  for name, group in groups.items():
    row = {"name": name, **_row(group), "paired": None}
    if name != reference and reference in groups:
      pairs = compare_groups(group, groups[reference])
      row["paired"] = dataclasses.asdict(pairs) if pairs else None
    row["difference"] = _difference(row["paired"])
    distances = _distances(group, groups.get(_BOUND, []))
    row["intransigence_by_phase"] = distances
    later = distances[1:] if distances else []
    row["intransigence"] = statistics.fmean(later) if later else None
    result.append(row)
  return result


def kept_bytes(rows: list[dict[str, Any]]) -> tuple[list[float], str]:
  """What the bytes axis of a chart shows, and how it is called.

  Args:
    rows: of `rows`.

  Returns:
    Bytes of each row: those that the next phase needs or, if the record of an
    older version does not know them, of all rows those on the disk.
  """
  needed = [row.get("next_phase_bytes") for row in rows]
  if None in needed:
    on_disk = [row["total_bytes"] for row in rows]
    return on_disk, "kept on the disk, models included"
  return needed, "that the next phase needs, models included"


def _difference(paired: dict[str, Any] | None) -> str | None:
  """The cell of a table: difference, interval, test and mark."""
  if paired is None:
    return None
  text = f"{paired['difference']:+.2f}"
  if paired["interval"] is not None:
    text += f" ± {paired['interval']:.2f}"
  if paired["p_values"]:
    text += f" (p {', '.join(f'{p:.2g}' for p in paired['p_values'])})"
  return f"{text} ≈" if paired["indistinguishable"] else text


def _distances(
  group: list[dict[str, Any]], bounds: list[dict[str, Any]]
) -> list[float] | None:
  """Mean distance to the upper bound after each phase, in points.

  Runs are paired by class order and seed; None without a pair.
  """
  bound_of = {_pair(run): run for run in bounds}
  differences = []
  for run in group:
    bound = bound_of.get(_pair(run))
    if bound and not _texts([("", run), ("", bound)], ()):
      phases = zip(bound["phases"], run["phases"], strict=True)
      differences.append([b["accuracy"] - r["accuracy"] for b, r in phases])
  if not differences:
    return None
  return [statistics.fmean(values) for values in zip(*differences, strict=True)]


def _row(group: list[dict[str, Any]]) -> dict[str, Any]:
  if any(run["backbone"] != group[0]["backbone"] for run in group):
    raise UserError(
      f"runs of {group[0]['method']} that are named as seeds of one have "
      f"different networks: give one of them another name."
    )
  accuracies = {name: [run.get(name) for run in group] for name in _ACCURACIES}
  costs = [_costs(run) for run in group]
  return {
    "method": group[0]["method"],
    "seeds": [run["seed"] for run in group],
    "class_orders": sorted({_order(run) for run in group} - {None}),
    **{name: _mean(values) for name, values in accuracies.items()},
    "deviations": {
      name: _deviation(values)
      for name, values in accuracies.items()
      if len(values) > 1
    },
    **{name: _mean([cost[name] for cost in costs]) for name in costs[0]},
    "backbone": group[0]["backbone"],
  }


def _costs(run: dict[str, Any]) -> dict[str, float | None]:
  memory = run["phases"][-1]["memory"]
  by_image = bytes_per_image(memory) or (None, None)
  return {
    "images_bytes": memory.get("images_and_decoders"),
    "next_phase_bytes": memory.get("next_phase"),
    "total_bytes": memory["total"],
    "images": memory["images"],
    "bytes_per_image": by_image[0],
    "bytes_per_image_spread": by_image[1],
    "seconds": sum(phase["train_seconds"] for phase in run["phases"]),
  }


def _mean(values: Sequence[float | None]) -> float | None:
  return None if None in values else statistics.mean(values)


def _deviation(values: Sequence[float | None]) -> float | None:
  """The standard deviation of a sample; None where it has none."""
  if None in values or len(values) < 2:
    return None
  return statistics.stdev(values)


def markdown(
  groups: dict[str, list[dict[str, Any]]],
  reference: str = REFERENCE,
) -> str:
  """The comparison as Markdown, with the commands and both figures.

  Args:
    groups: of `over_seeds`, at least one.
    reference: see `rows`.
  """
  runs = [run for group in groups.values() for run in group]
  table = report.table(
    [heading for _, heading, _ in _COLUMNS],
    [
      [
        _cell(row[name], digits, row["deviations"].get(name))
        for name, _, digits in _COLUMNS
      ]
      for row in rows(groups, reference)
    ],
  )
  named = {
    f"{name} {_pair(run)}": run
    for name, group in groups.items()
    for run in group
  }
  backbones = {
    f"{run['backbone']['name']}, {run['backbone']['parameters']:,} parameters"
    for run in runs
  }
  commands = dict.fromkeys(run["command"] for run in runs)
  sections = [
    f"# {len(runs)} runs on {runs[0]['dataset']}",
    "\n".join(["```", *commands, "```"]),
    table,
    f"Backbone: {'; '.join(sorted(backbones))}. Bytes are those on disk after "
    "the last phase, or of upper_bound those of all pixels; seconds, of "
    "machines that may have had other work. Where there are several seeds: the "
    "mean ± the standard deviation of one run.",
    _paired_note(reference),
    *_mixed_note(_differences(named)),
    "Accuracy after each phase, % of all classes seen:",
    _phase_table(groups),
    "![Accuracy after each phase](phase_accuracy.png)",
    "![Accuracy against bytes](accuracy_against_bytes.png)",
  ]
  return "\n\n".join(sections) + "\n"


def _paired_note(reference: str) -> str:
  return (
    f"Difference: of the average without base phase to {reference}, over runs "
    "of the same class order and seed, ± half the width of its 95 % confidence "
    "interval; p is that of McNemar's exact test on all images after the last "
    "phase, within each pair. ≈ marks rows that are statistically "
    "indistinguishable from the reference: the interval contains 0 or, with "
    "one pair, p is above .05. Intransigence: mean distance to upper_bound "
    "after each phase but the base phase. The bytes that the next phase needs "
    "have the network in 8 bits wherever the next phase uses it."
  )


def _mixed_note(differences: list[str]) -> list[str]:
  if not differences:
    return []
  lines = "\n".join(f"- {text}" for text in differences)
  return [f"**These runs differ in data, classes or phases:**\n\n{lines}"]


def _phase_table(groups: dict[str, list[dict[str, Any]]]) -> str:
  longest = max(
    (run["phases"] for group in groups.values() for run in group), key=len
  )
  body = []
  for name, group in groups.items():
    line = [name]
    for number in range(len(longest)):
      values = [
        run["phases"][number]["accuracy"]
        if number < len(run["phases"])
        else None
        for run in group
      ]
      line.append(_cell(_mean(values), 2, _deviation(values)))
    body.append(line)
  head = ["run", *(f"{phase['classes_seen']} classes" for phase in longest)]
  return report.table(head, body)


def _cell(
  value: Any, digits: int | None, deviation: float | None = None
) -> str:
  if value is None:
    return "–"
  if isinstance(value, list):
    return ", ".join(map(str, value))
  if digits is None:
    return value
  spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
  return f"{value:,.{digits}f}{spread}"
