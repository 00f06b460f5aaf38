"""Tables that a person reads: on the terminal and in `report.md`."""

from typing import Any

from ibdrr_tf.evaluation.ledger import FULL_SET, bytes_per_image

__all__ = [
  "markdown",
  "megabytes",
  "phase_header",
  "phase_row",
  "phase_table",
  "summary",
  "table",
]

_COLUMNS = (
  "phase",
  "classes",
  "accuracy %",
  "base %",
  "new %",
  "seconds",
  "images kept",
  "images MB",
  "next MB",
)
# On a terminal of 80 columns: which of them, their headings and widths, and
# what stands above them.
_NARROW = (
  ("", (("phase", "phase", 5), ("classes", "classes", 7))),
  (
    "% right of classes:",
    (("accuracy %", "all", 7), ("base %", "base", 7), ("new %", "new", 7)),
  ),
  ("kept in memory:", (("images kept", "images", 9), ("next MB", "MB", 9))),
  ("training:", (("seconds", "seconds", 9),)),
)
# Parts of the summary that a terminal shows; report.md has them all.
_SHOWN = (
  "average accuracy",
  "accuracy after the last phase",
  "forgetting",
  "everything that the next phase needs",
  "bytes an image",
)


def megabytes(count: int) -> str:
  """Bytes as MB of 10^6 bytes."""
  return f"{count / 1e6:.3f}"


def phase_header() -> str:
  """The heading of the phase table on a terminal: two lines."""
  above, below = [], []
  for title, columns in _NARROW:
    names = "  ".join(name.rjust(width) for _, name, width in columns)
    above.append(title.rjust(len(names)))
    below.append(names)
  return "  ".join(above) + "\n" + "  ".join(below)


def phase_row(phase: dict[str, Any]) -> str:
  """A finished phase as a row of that table."""
  cells = dict(zip(_COLUMNS, _cells(phase), strict=True))
  return "  ".join(
    cells[key].rjust(width)
    for _, columns in _NARROW
    for key, _, width in columns
  )


def phase_table(
  phases: list[dict[str, Any]],
) -> tuple[list[str], list[list[str]]]:
  """Headings and cells of all finished phases."""
  return list(_COLUMNS), [_cells(phase) for phase in phases]


def summary(results: dict[str, Any]) -> str:
  """What the run reached, each metric with the name that says which it is."""
  items = [
    item for item in _summary_items(results) if item[0].startswith(_SHOWN)
  ]
  width = max(len(name) for name, _ in items)
  return "\n".join(f"{name.ljust(width)}  {value}" for name, value in items)


def markdown(results: dict[str, Any]) -> str:
  """The whole report of a run, as Markdown."""
  head, phases = phase_table(results["phases"])
  groups = [
    [str(phase["phase"])]
    + [f"{value:.2f}" for value in phase["accuracy_by_phase_group"]]
    for phase in results["phases"]
  ]
  width = len(results["phases"])
  groups = [row + [""] * (width + 1 - len(row)) for row in groups]
  group_head = ["after phase"] + [f"group {j}" for j in range(width)]
  ledger = results["phases"][-1]["memory"]
  sections = [
    f"# {results['method']} on {results['dataset']}",
    f"```\n{results['command']}\n```",
    table(["", ""], [list(item) for item in _summary_items(results)]),
    "## Phases",
    f"Accuracy is on the {_evaluated_on(results)} images of all classes seen "
    "so far; base and new are its parts on the base classes and on those of "
    "the phase. Images MB are images and what decodes them; next MB, "
    "everything that the next phase needs: the network too, in 8 bits, where "
    "the method uses it. MB are 10^6 bytes.",
    table(head, phases),
    *_other_accuracies(results),
    "![Accuracy after each phase](phase_accuracy.png)",
    "## Accuracy by group",
    f"Rows: after which phase. Columns: {_evaluated_on(results)} images of the "
    "classes that a phase introduced.",
    table(group_head, groups),
    "## Memory after the last phase",
    table(
      ["", "bytes"],
      [[k, "–" if v is None else str(v)] for k, v in ledger.items()],
    ),
    "## Versions",
    table(["package", "version"], [list(i) for i in _versions(results)]),
  ]
  return "\n\n".join(sections) + "\n"


def _other_accuracies(results: dict[str, Any]) -> list[str]:
  """Accuracies of a method's other classifiers; nothing if there are none."""
  names = list(results["phases"][-1].get("other_accuracies", {}))
  if not names:
    return []
  rows = [
    [str(phase["phase"])]
    + [f"{phase['other_accuracies'][name]:.2f}" for name in names]
    for phase in results["phases"]
  ]
  return [
    "The same by this method's other classifiers:",
    table(["phase"] + [f"{name} %" for name in names], rows),
  ]


def _versions(results: dict[str, Any]) -> list[tuple[str, str]]:
  return [(name, str(value)) for name, value in results["versions"].items()]


def _cells(phase: dict[str, Any]) -> list[str]:
  groups = phase["accuracy_by_phase_group"]
  return [
    str(phase["phase"]),
    str(phase["classes_seen"]),
    f"{phase['accuracy']:.2f}",
    f"{groups[0]:.2f}",
    f"{groups[-1]:.2f}",
    f"{phase['train_seconds']:.1f}",
    str(phase["memory"]["images"]),
    *(megabytes(total) for total in _totals(phase["memory"])),
  ]


def _totals(ledger: dict[str, Any]) -> tuple[int, int]:
  """Images with what decodes them; and everything that the next phase needs."""
  return ledger["images_and_decoders"], ledger["next_phase"]


def _evaluated_on(results: dict[str, Any]) -> str:
  return results["data"]["evaluated_on"]


def _summary_items(results: dict[str, Any]) -> list[tuple[str, str]]:
  def percent(name: str) -> str:
    value = results[name]
    return "–" if value is None else f"{value:.2f}"

  backbone = results["backbone"]
  ledger = results["phases"][-1]["memory"]
  return [
    ("method", results["method"]),
    ("data set", results["dataset"]),
    ("backbone", f"{backbone['name']}, {backbone['parameters']:,} parameters"),
    ("average accuracy without base phase %", percent("average_accuracy")),
    (
      "average accuracy with base phase %",
      percent("average_accuracy_with_base"),
    ),
    ("accuracy after the last phase %", percent("last_accuracy")),
    ("forgetting, points", percent("forgetting")),
    ("backward transfer, points", percent("backward_transfer")),
    ("drop on base classes, points", percent("base_drop")),
    ("evaluated on", f"{_evaluated_on(results)} images"),
    ("on the disk, models included, MB", megabytes(ledger["total"])),
    ("images and what decodes them, MB", megabytes(_totals(ledger)[0])),
    ("everything that the next phase needs, MB", megabytes(_totals(ledger)[1])),
    *_byte_items(ledger),
    ("seed", str(results["seed"])),
  ]


def _byte_items(ledger: dict[str, Any]) -> list[tuple[str, str]]:
  """Rates, both ways; nothing where no image is kept."""
  by_image = bytes_per_image(ledger)
  if by_image is None:
    return []
  stored, spread = (f"{value:.1f}" for value in by_image)
  items = [("bytes an image, as stored", stored)]
  if stored != spread:
    items.append((f"bytes an image, models spread over {FULL_SET:,}", spread))
  if ledger["bits_per_code"] is not None:
    items.append(("bits a code", f"{ledger['bits_per_code']:.3f}"))
  return items


def table(head: list[str], rows: list[list[str]]) -> str:
  """A table in Markdown."""
  lines = [head, ["---"] * len(head), *rows]
  return "\n".join("| " + " | ".join(line) + " |" for line in lines)
