"""`report.html` of a run, or of a learner's state."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ibdrr_tf.evaluation import metrics, report
from ibdrr_tf.evaluation.chart_style import family_of
from ibdrr_tf.evaluation.gallery import gallery
from ibdrr_tf.evaluation.html_page import Markup, page, section, table, tag
from ibdrr_tf.evaluation.ledger import PARTS, bytes_per_image
from ibdrr_tf.evaluation.predictions import Predictions
from ibdrr_tf.evaluation.recalled import Recalled
from ibdrr_tf.evaluation.svg_bars import matrix_chart, stacked_bars
from ibdrr_tf.evaluation.svg_charts import Series, line_chart

__all__ = ["run_page", "state_page"]

_MOST_ROWS = 12
_WORST = 8


def run_page(
  results: dict[str, Any],
  *,
  names: Sequence[str],
  image_shape: tuple[int, int, int],
  predictions: Predictions | None = None,
  recalled: Recalled | None = None,
) -> str:
  """The report of a run, finished or not, as one HTML file.

  Args:
    results: contents of results.json.
    names: of the classes seen, by label.
    image_shape: (height, width, 3) of all images.
    predictions: of the run; without them nothing is said about confusions.
    recalled: images of its memory; None before the last phase is done.
  """
  phases = results["phases"]
  boundaries = tuple(phase["classes_seen"] for phase in phases)
  evaluated = results["data"]["evaluated_on"]
  return page(
    f"{results['method']} on {results['dataset']}",
    tag("p", _subtitle(results), class_="quiet"),
    _facts(results),
    _accuracy(results, boundaries, evaluated),
    _bytes(
      [
        (f"{phase['classes_seen']} classes", phase["memory"])
        for phase in phases
      ],
      image_shape,
    ),
    _confusion(predictions, boundaries, names) if predictions else None,
    gallery(recalled, names) if recalled else None,
    _command(results),
  )


def state_page(
  status: dict[str, Any],
  *,
  labels: np.ndarray | None = None,
  predicted: np.ndarray | None = None,
  recalled: Recalled | None = None,
) -> str:
  """The report of a learner's state, as one HTML file.

  Args:
    status: what `ibdrr status --json` prints.
    labels: int [n], of images that were set aside to test with.
    predicted: int [n], what the network calls them.
    recalled: images of its memory.
  """
  steps, names = status["history"], status["classes"]
  family = family_of(status["method"])
  tested = [step for step in steps if step.get("accuracy")]
  curves = []
  for key, title in (
    ("all", "all classes"),
    ("old", "classes of earlier steps"),
    ("new", "classes of the step"),
  ):
    values = [step["accuracy"].get(key) for step in tested]
    weight = "strong" if key == "all" else "faint"
    if any(value is not None for value in values):
      curves.append(Series(title, values, family, weight=weight))
  chart = tag("p", "No images were set aside to test with.")
  if curves:
    chart = line_chart(
      curves,
      [step["step"] for step in tested],
      "Accuracy on images that were set aside, after each step",
      "step",
    )
  confusion = None
  if labels is not None and len(labels):
    confusion = _pairs(labels, predicted, names)
  ledger = status["ledger"]
  return page(
    f"What a learner knows: {len(names)} classes",
    tag(
      "p",
      f"Method {status['method']}, step {status['step']}.",
      class_="quiet",
    ),
    _fact_list(
      [
        (str(len(names)), "classes"),
        (f"{ledger['images']:,}", "images remembered"),
        (_size(ledger["total"]), "on the disk, models included"),
        *(
          [
            (
              f"{tested[-1]['accuracy']['all']:.1f} %",
              "right of images set aside",
            )
          ]
          if tested
          else []
        ),
      ]
    ),
    section(
      "Accuracy",
      tag(
        "p",
        "On images that were set aside. Those of earlier steps are tested as "
        "memory gives them back.",
      ),
      chart,
    ),
    _bytes(
      [(f"step {step['step']}", step["ledger"]) for step in steps],
      tuple(status["image_shape"]),
    ),
    confusion,
    gallery(recalled, names),
    _steps(steps),
  )


def _subtitle(results: dict[str, Any]) -> str:
  backbone = results["backbone"]
  return (
    f"{backbone['name']}, {backbone['parameters']:,} parameters; seed "
    f"{results['seed']}; {results['phases'][-1]['classes_seen']} classes in "
    f"{len(results['phases'])} phases."
  )


def _facts(results: dict[str, Any]) -> Markup:
  ledger = results["phases"][-1]["memory"]
  facts = [(f"{results['last_accuracy']:.1f} %", "right after the last phase")]
  if results["average_accuracy"] is not None:
    facts += [
      (f"{results['average_accuracy']:.1f} %", "average without base phase"),
      (f"{results['forgetting']:.1f}", "points forgotten"),
    ]
  facts.append((_size(ledger["next_phase"]), "needed by the next phase"))
  by_image = bytes_per_image(ledger)
  if by_image:
    facts.append((f"{by_image[0]:,.0f}", "bytes an image, models included"))
  return _fact_list(facts)


def _fact_list(facts: list[tuple[str, str]]) -> Markup:
  items = (tag("li", tag("b", a), tag("span", b)) for a, b in facts)
  return tag("ul", *items, class_="facts")


def _accuracy(
  results: dict[str, Any], boundaries: tuple[int, ...], evaluated: str
) -> Markup:
  phases, family = results["phases"], family_of(results["method"])
  curves = [
    Series(
      "all classes",
      [phase["accuracy"] for phase in phases],
      family,
      weight="strong",
    )
  ]
  if len(phases) > 1:
    groups = [phase["accuracy_by_phase_group"] for phase in phases]
    curves += [
      Series("base classes", [g[0] for g in groups], family, weight="faint"),
      Series("newest classes", [g[-1] for g in groups], family, weight="faint"),
    ]
  head, rows = report.phase_table(phases)
  return section(
    "Accuracy as classes are added",
    tag("p", f"On the {evaluated} images of all classes seen so far."),
    line_chart(
      curves,
      boundaries,
      "Accuracy after each phase, in percent, against classes seen",
      "classes seen",
    ),
    tag("details", tag("summary", "All figures"), table(head, rows)),
  )


def _bytes(
  ledgers: list[tuple[str, dict[str, Any]]], image_shape: tuple[int, int, int]
) -> Markup:
  """The byte ledger after each phase, beside the pixels of the same images."""
  last = ledgers[-1][1]
  pixels = last["images"] * int(np.prod(image_shape))
  rows = [
    (
      name,
      [*(ledger[part] for part in PARTS), 0],
      f"{ledger['total']:,} bytes",
    )
    for name, ledger in ledgers[-_MOST_ROWS:]
  ]
  if pixels:
    values = [*(0 for _ in PARTS), pixels]
    rows.append(("as pixels", values, f"{pixels:,} bytes"))
  text = (
    f"{last['images']:,} images are remembered in {last['total']:,} bytes, "
    f"models included; their pixels would take {pixels:,}."
  )
  return section(
    "Bytes kept",
    tag("p", text),
    stacked_bars(
      rows,
      [
        *((part, k) for k, part in enumerate(PARTS.values())),
        ("the same images as pixels", len(PARTS)),
      ],
      "Bytes kept after each phase, by kind",
      "bytes",
    ),
  )


def _confusion(
  predictions: Predictions, boundaries: tuple[int, ...], names: Sequence[str]
) -> Markup | None:
  """Old classes taken for new ones, and the other way round."""
  phases = min(len(boundaries), len(predictions.predicted))
  bars = []
  for phase in range(max(1, phases - _MOST_ROWS // 2), phases):
    seen = predictions.labels < boundaries[phase]
    shares = metrics.old_and_new(
      predictions.labels[seen],
      predictions.predicted[phase][seen],
      boundaries[phase - 1],
    )
    for kind, values in shares.items():
      name = f"{boundaries[phase]} classes, {kind}"
      bars.append((name, values, f"{values[0]:.1f} % right"))
  if not bars:
    return None
  seen = predictions.labels < boundaries[-1]
  labels, predicted = predictions.labels[seen], predictions.predicted[-1][seen]
  matrix = metrics.confusion_matrix(labels, predicted, boundaries[-1])
  groups = metrics.group_confusion(matrix, boundaries)
  starts = (0, *boundaries[:-1])
  titles = [
    f"phase {k}: classes {a + 1}–{b}"
    for k, (a, b) in enumerate(zip(starts, boundaries, strict=True))
  ]
  return section(
    "Confusion between old and new classes",
    tag(
      "p",
      "How test images of the old classes and of the newest ones are named, "
      "after each phase.",
    ),
    stacked_bars(
      bars,
      [
        ("right", 2),
        ("taken for a wrong old class", 3),
        ("taken for a wrong new class", 0),
      ],
      "Shares of old and of new classes that are right or taken for others",
      "%",
      digits=1,
    ),
    tag(
      "p",
      "After the last phase, by the phase that introduced a class. Rows: the "
      "true class; columns: the named one; percent of a row.",
    ),
    matrix_chart(
      groups,
      titles,
      [str(k) for k in range(len(titles))],
      "Confusion between the classes of the phases, in percent",
    ),
    _worst(matrix, names),
  )


def _pairs(
  labels: np.ndarray, predicted: np.ndarray, names: Sequence[str]
) -> Markup:
  matrix = metrics.confusion_matrix(labels, predicted, len(names))
  return section(
    "Confusions",
    tag(
      "p",
      f"On {len(labels):,} images that were set aside, as memory gives them "
      "back.",
    ),
    _worst(matrix, names) or tag("p", "None."),
  )


def _worst(matrix: np.ndarray, names: Sequence[str]) -> Markup | None:
  """The most frequent confusions of two classes."""
  counts = matrix.sum(axis=1, keepdims=True)
  shares = 100 * matrix / np.maximum(counts, 1)
  np.fill_diagonal(shares, 0)
  order = np.argsort(shares, axis=None, kind="stable")[::-1][:_WORST]
  rows = [
    [names[i], names[j], f"{shares[i, j]:.1f} %"]
    for i, j in zip(*np.unravel_index(order, shares.shape), strict=True)
    if shares[i, j]
  ]
  if not rows:
    return None
  return table(
    ["class", "taken for", "share"], rows, "Most frequent confusions"
  )


def _steps(steps: Sequence[dict[str, Any]]) -> Markup:
  rows = []
  for step in steps:
    if step["kind"] == "forget":
      rows.append([str(step["step"]), "–", f"forgot {step['class']}"])
    else:
      new = ", ".join(step["new_classes"]) or "–"
      rows.append([str(step["step"]), f"{step['images']:,}", new])
  return section("Steps", table(["step", "images", "new classes"], rows))


def _command(results: dict[str, Any]) -> Markup:
  versions = ", ".join(f"{k} {v}" for k, v in results["versions"].items())
  return section(
    "Command",
    tag("pre", results["command"]),
    tag("p", versions, class_="quiet"),
  )


def _size(count: float) -> str:
  return f"{count / 1e6:,.2f} MB" if count >= 1e4 else f"{count:,.0f} bytes"
