import io

import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.evaluation import figures, report
from ibdrr_tf.evaluation import results as records
from ibdrr_tf.evaluation.ledger import Ledger

IDENTITY = {
  "method": "raw_replay",
  "dataset": "toy",
  "backbone": {"name": "resnet18 of width 8", "parameters": 177052},
  "data": {"class_order": "1993", "evaluated_on": "validation"},
  "seed": 7,
  "command": "python -m ibdrr_tf.main --seed=7",
  "versions": {"tensorflow": "2.14.1"},
}


def make_results():
  """Two base classes all right; then half of them and all of the new one."""
  ledger = Ledger(
    raw_exemplars=1_234_567, images=9, old_network_8bit=700_000
  ).to_json()
  confusions = [
    np.diag([4, 4]),
    np.array([[4, 0, 0], [0, 0, 4], [0, 0, 4]]),
  ]
  phases = [
    records.phase_record(
      phase=phase,
      boundaries=(2, 3)[: phase + 1],
      confusion=confusion,
      train_seconds=1.234,
      memory=ledger,
    )
    for phase, confusion in enumerate(confusions)
  ]
  return records.summarize(phases, IDENTITY)


def test_results_hold_what_scripts_rely_on():
  results = make_results()
  assert list(results) == [
    "method",
    "dataset",
    "backbone",
    "phases",
    "average_accuracy",
    "average_accuracy_with_base",
    "last_accuracy",
    "forgetting",
    "backward_transfer",
    "base_drop",
    "data",
    "seed",
    "command",
    "versions",
  ]
  assert results["average_accuracy"] == pytest.approx(100 * 2 / 3)
  assert results["average_accuracy_with_base"] == pytest.approx(250 / 3)
  assert results["forgetting"] == 50.0
  assert results["backward_transfer"] == -50.0
  assert results["base_drop"] == 50.0
  assert results["phases"][1]["accuracy_by_phase_group"] == [50.0, 100.0]


def test_rows_align_with_their_heading_and_fit_a_terminal():
  results = make_results()
  above, head = report.phase_header().splitlines()
  row = report.phase_row(results["phases"][1])
  assert len(above) == len(head) == len(row) <= 80
  cells = dict(zip(head.split(), row.split(), strict=True))
  assert cells == {
    "phase": "1",
    "classes": "3",
    "all": "66.67",
    "base": "50.00",
    "new": "100.00",
    "images": "9",
    "MB": "1.935",
    "seconds": "1.2",
  }
  assert report.phase_table(results["phases"])[1][1][-2:] == ["1.235", "1.935"]


def test_the_summary_fits_a_terminal():
  lines = report.summary(make_results()).splitlines()
  assert max(map(len, lines)) <= 80
  found = dict(line.rsplit("  ", 1) for line in lines)
  found = {name.strip(): value for name, value in found.items()}
  assert found["average accuracy without base phase %"] == "66.67"
  assert found["accuracy after the last phase %"] == "66.67"
  assert found["everything that the next phase needs, MB"] == "1.935"


def test_markdown_names_metrics_backbone_and_command():
  text = report.markdown(make_results())
  for part in (
    "| average accuracy without base phase % | 66.67 |",
    "| average accuracy with base phase % | 83.33 |",
    "177,052 parameters",
    IDENTITY["command"],
    "| 1 | 50.00 | 100.00 |",
    "| total | 1234567 |",
    "| images and what decodes them, MB | 1.235 |",
    "| everything that the next phase needs, MB | 1.935 |",
    "| drop on base classes, points | 50.00 |",
    "on the validation images of all classes",
  ):
    assert part in text
  for line in text.splitlines():
    if line.startswith("|"):
      assert line.endswith("|")


def test_figures_are_pictures():
  results = make_results()
  for figure in (
    figures.phase_accuracy_figure({"a": [results], "b": [results]}),
    figures.confusion_figure(np.eye(3, dtype=int), (2, 3)),
  ):
    with Image.open(io.BytesIO(figures.to_png(figure))) as picture:
      pixels = np.asarray(picture.convert("L"))
    assert min(pixels.shape) > 300 and pixels.std() > 5
