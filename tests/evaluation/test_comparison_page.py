"""`report.html` of several runs: every run in both charts, with a box."""

import pytest
from pages import RUNS, Page, make_run

from ibdrr_tf.evaluation import comparison
from ibdrr_tf.evaluation.comparison_page import comparison_page


@pytest.fixture(scope="module")
def page():
  groups = comparison.over_seeds(RUNS)
  return Page(comparison_page(groups, comparison.rows(groups)))


def test_every_run_has_a_box_and_can_be_switched_everywhere(page):
  boxes = page.find("input", type="checkbox", name="run")
  assert [box["value"] for box in boxes] == ["drr", "<i>mine", "finetune"]
  assert all("checked" in box.attributes for box in boxes)
  for box in boxes:
    elements = [
      element
      for element in page.elements
      if element.attributes.get("data-run") == box["value"]
    ]
    # A curve, a point and a row of the table.
    assert [e.name for e in elements] == ["g", "g", "tr"]
    families = {name for e in elements for name in e.classes}
    assert box["data-family"] in families
  buttons = [button["data-show"] for button in page.find("button")]
  assert buttons == ["all", "codes", "exemplars", "bounds"]


def test_curves_are_means_in_bands_and_ours_are_strong(page):
  curves = [
    g for g in page.find("g", "run") if g.parents[-1]["class"] == "chart lines"
  ]
  values = {
    curve["data-run"]: [
      circle["data-value"]
      for circle in page.find("circle")
      if curve in circle.parents
    ]
    for curve in curves
  }
  assert values == {
    "drr": ["89.00", "75.00"],
    "finetune": ["90.00", "20.00"],
    "<i>mine": ["85.00", "60.00"],
  }
  (band,) = page.find("polygon", "band")
  assert band.parents[-1]["data-run"] == "drr"
  assert [g["data-run"] for g in curves if "strong" in g.classes] == ["drr"]
  assert curves[-1]["data-run"] == "drr"  # Drawn last, above the others.


def test_points_stand_at_their_bytes(page):
  points = {
    point["data-tip"]: float(point["cx"])
    for point in page.find("circle", tabindex="0")
  }
  ours, nothing, raw = points
  assert ours == "drr: 75.00 ± 7.07 % with 2.000 MB"
  assert nothing == "finetune: 20.00 % with 0.000 MB"
  assert raw == "<i>mine: 60.00 % with 30.000 MB"
  assert points[nothing] < points[ours] < points[raw]


def test_the_table_and_the_commands_are_complete(page):
  rows = [row.text for row in page.find("tr", "run")]
  assert rows[0].startswith("drr75.00 ± 7.07")
  assert "2,000,000" in rows[0] and rows[1].startswith("<i>mine60.00")
  commands = [command.text for command in page.find("pre")]
  assert commands == [run["command"] for run in RUNS.values()]


def test_base_phases_alone_have_a_page():
  groups = comparison.over_seeds({"drr": make_run("drr", [90.0], 9)})
  page = Page(comparison_page(groups, comparison.rows(groups)))
  assert len(page.find("circle")) == 1
