"""Several runs beside each other: one row each."""

from typing import Any

from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import report
from ibdrr_tf.evaluation.ledger import FULL_SET, bytes_per_image

__all__ = ["check_alike", "markdown", "rows"]

# Names in comparison.json, headings of the table, digits after the point.
_COLUMNS = (
  ("name", "run", None),
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


def rows(runs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
  """What is compared, of each run.

  Args:
    runs: contents of results.json, by the name that a run has here.

  Returns:
    One dict a run. `bytes_per_image` is all that is kept after the last phase,
    models included, by the images that can be replayed, and once more with the
    models spread over a full set; None if there are none.
  """
  return [{"name": name, **_row(run)} for name, run in runs.items()]


def _row(run: dict[str, Any]) -> dict[str, Any]:
  memory = run["phases"][-1]["memory"]
  by_image = bytes_per_image(memory) or (None, None)
  metrics = (
    "method",
    "average_accuracy",
    "average_accuracy_with_base",
    "last_accuracy",
    "forgetting",
  )
  return {
    **{name: run[name] for name in metrics},
    "total_bytes": memory["total"],
    "images": memory["images"],
    "bytes_per_image": by_image[0],
    "bytes_per_image_spread": by_image[1],
    "seconds": sum(phase["train_seconds"] for phase in run["phases"]),
    "backbone": run["backbone"],
  }


def markdown(runs: dict[str, dict[str, Any]]) -> str:
  """The comparison as Markdown, with the commands and both figures.

  Args:
    runs: as for `rows`, at least one.
  """
  first = next(iter(runs.values()))
  table = report.table(
    [heading for _, heading, _ in _COLUMNS],
    [
      [_cell(row[name], digits) for name, _, digits in _COLUMNS]
      for row in rows(runs)
    ],
  )
  phases = report.table(
    ["run", *(f"{phase['classes_seen']} classes" for phase in first["phases"])],
    [
      [name, *(_cell(phase["accuracy"], 2) for phase in run["phases"])]
      for name, run in runs.items()
    ],
  )
  backbones = {
    f"{run['backbone']['name']}, {run['backbone']['parameters']:,} parameters"
    for run in runs.values()
  }
  seeds = sorted({run["seed"] for run in runs.values()})
  commands = dict.fromkeys(run["command"] for run in runs.values())
  sections = [
    f"# {len(runs)} runs on {first['dataset']}",
    "\n".join(["```", *commands, "```"]),
    table,
    f"Backbone: {'; '.join(sorted(backbones))}. Seed "
    f"{', '.join(map(str, seeds))}. Bytes are those on disk after the last "
    "phase, or of upper_bound those of all pixels; seconds, of machines that "
    "may have had other work.",
    "Accuracy after each phase, % of all classes seen:",
    phases,
    "![Accuracy after each phase](phase_accuracy.png)",
    "![Accuracy against bytes](accuracy_against_bytes.png)",
  ]
  return "\n\n".join(sections) + "\n"


def _cell(value: Any, digits: int | None) -> str:
  if value is None:
    return "–"
  return value if digits is None else f"{value:,.{digits}f}"
