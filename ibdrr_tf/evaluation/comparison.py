"""Several runs beside each other: one row each, seeds of one taken together.

Runs whose names say that they differ in their seed make one row of means and
standard deviations: `drr-seed-1` joins `drr`.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import report
from ibdrr_tf.evaluation.ledger import FULL_SET, bytes_per_image

__all__ = ["check_alike", "markdown", "over_seeds", "rows"]

# Names in comparison.json, headings of the table, digits after the point.
_COLUMNS = (
  ("name", "run", None),
  ("seeds", "seeds", None),
  ("average_accuracy", "average without base phase %", 2),
  ("average_accuracy_with_base", "average with base phase %", 2),
  ("last_accuracy", "last phase %", 2),
  ("forgetting", "forgetting, points", 2),
  ("total_bytes", "bytes kept, models included", 0),
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
)


def check_alike(runs: dict[str, dict[str, Any]]) -> None:
  """Refuses runs, by name, that did not learn the same classes in phases."""
  seen = {
    name: (run["dataset"], [phase["classes_seen"] for phase in run["phases"]])
    for name, run in runs.items()
  }
  first, *others = seen
  for name in others:
    if seen[name] != seen[first]:
      texts = (
        f"{n} has learned {seen[n][1]} classes of {seen[n][0]} in its phases"
        for n in (first, name)
      )
      raise UserError(
        f"{', '.join(texts)}: only finished runs with the same phases can be "
        f"compared."
      )


def over_seeds(
  runs: dict[str, dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:
  """Brings together what differs in its seed.

  Args:
    runs: contents of results.json, by the name that a run has here. One that is
      called NAME-seed-N, N being its seed, belongs to NAME.

  Returns:
    Runs by name, one or more each, by seed.
  """
  groups = {}
  for name, run in runs.items():
    shared = name.removesuffix(f"-seed-{run['seed']}")
    group = groups.setdefault(shared, [])
    if any(run["seed"] == other["seed"] for other in group):
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
  return {
    name: sorted(group, key=lambda run: run["seed"])
    for name, group in groups.items()
  }


def rows(groups: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
  """What is compared, of each run or of the same run with several seeds.

  Args:
    groups: of `over_seeds`.

  Returns:
    One dict a name; figures are means over `seeds`, and those of accuracy have
    their standard deviations in `deviations` where there are several seeds.
    `bytes_per_image` is all that is kept after the last phase, models included,
    by the images that can be replayed, and once more with the models spread
    over a full set; None if there are none.
  """
  return [{"name": name, **_row(group)} for name, group in groups.items()]


def _row(group: list[dict[str, Any]]) -> dict[str, Any]:
  if any(run["backbone"] != group[0]["backbone"] for run in group):
    raise UserError(
      f"runs of {group[0]['method']} that are named as seeds of one have "
      f"different networks: give one of them another name."
    )
  accuracies = {name: [run[name] for run in group] for name in _ACCURACIES}
  costs = [_costs(run) for run in group]
  return {
    "method": group[0]["method"],
    "seeds": [run["seed"] for run in group],
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


def markdown(groups: dict[str, list[dict[str, Any]]]) -> str:
  """The comparison as Markdown, with the commands and both figures.

  Args:
    groups: of `over_seeds`, at least one.
  """
  runs = [run for group in groups.values() for run in group]
  table = report.table(
    [heading for _, heading, _ in _COLUMNS],
    [
      [
        _cell(row[name], digits, row["deviations"].get(name))
        for name, _, digits in _COLUMNS
      ]
      for row in rows(groups)
    ],
  )
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
    "Accuracy after each phase, % of all classes seen:",
    _phase_table(groups),
    "![Accuracy after each phase](phase_accuracy.png)",
    "![Accuracy against bytes](accuracy_against_bytes.png)",
  ]
  return "\n\n".join(sections) + "\n"


def _phase_table(groups: dict[str, list[dict[str, Any]]]) -> str:
  first = next(iter(groups.values()))[0]["phases"]
  body = []
  for name, group in groups.items():
    line = [name]
    for number in range(len(first)):
      values = [run["phases"][number]["accuracy"] for run in group]
      line.append(_cell(_mean(values), 2, _deviation(values)))
    body.append(line)
  head = ["run", *(f"{phase['classes_seen']} classes" for phase in first)]
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
