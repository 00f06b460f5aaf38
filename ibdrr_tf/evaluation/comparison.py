"""Several runs beside each other: one row each."""

from typing import Any

from ibdrr_tf.evaluation import report
from ibdrr_tf.evaluation.ledger import FULL_SET, bytes_per_image

__all__ = ["markdown", "rows"]

# Names in comparison.json, headings of the table, digits after the point.
_COLUMNS = (
  ("method", "method", None),
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


def rows(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
  """What is compared, of each run.

  Args:
    runs: contents of results.json.

  Returns:
    One dict a run. `bytes_per_image` is all that is kept after the last phase,
    models included, by the images that can be replayed, and once more with the
    models spread over a full set; None if there are none.
  """
  return [_row(run) for run in runs]


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


def markdown(runs: list[dict[str, Any]]) -> str:
  """The comparison as Markdown, with the command and both figures."""
  table = report.table(
    [heading for _, heading, _ in _COLUMNS],
    [
      [_cell(row[name], digits) for name, _, digits in _COLUMNS]
      for row in rows(runs)
    ],
  )
  backbones = {
    f"{run['backbone']['name']}, {run['backbone']['parameters']:,} parameters"
    for run in runs
  }
  sections = [
    f"# {len(runs)} methods on {runs[0]['dataset']}",
    f"```\n{runs[-1]['command']}\n```",
    table,
    f"Backbone: {'; '.join(sorted(backbones))}. Seed {runs[0]['seed']}. Bytes "
    "are those on disk after the last phase.",
    "![Accuracy after each phase](phase_accuracy.png)",
    "![Accuracy against bytes](accuracy_against_bytes.png)",
  ]
  return "\n\n".join(sections) + "\n"


def _cell(value: Any, digits: int | None) -> str:
  if value is None:
    return "–"
  return value if digits is None else f"{value:,.{digits}f}"
