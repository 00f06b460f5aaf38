"""Figures of many runs can be read."""

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.text import Text

from ibdrr_tf import choices
from ibdrr_tf.evaluation import figures
from ibdrr_tf.evaluation.chart_style import family_of

METHODS = sorted(choices.METHODS)


def make_run(last, method="drr"):
  return {
    "method": method,
    "dataset": "shapes",
    "backbone": {"name": "resnet18", "parameters": 100},
    "last_accuracy": last,
    "phases": [
      {"classes_seen": 2, "accuracy": 80.0},
      {"classes_seen": 4, "accuracy": last},
    ],
  }


def make_row(name, average, deviation=None, method="drr"):
  return {
    "name": name,
    "method": method,
    "average_accuracy": average,
    "deviations": {"average_accuracy": deviation} if deviation else {},
    "total_bytes": 2 * 10**6,
  }


def boxes_of_labels(figure):
  """Where the names of curves or points are drawn, in pixels."""
  canvas = FigureCanvasAgg(figure)
  canvas.draw()
  (axes,) = figure.axes
  return {
    # Without the line that leads to it.
    text.get_text(): Text.get_window_extent(text, canvas.get_renderer())
    for text in axes.texts
  }


def assert_apart(boxes):
  for one, other in itertools.combinations(boxes.values(), 2):
    assert not one.overlaps(other)


def test_every_curve_has_its_name_and_value_at_its_end():
  # Many end near each other.
  runs = {
    method: [make_run(float(50 + number % 7), method)]
    for number, method in enumerate(METHODS)
  }
  figure = figures.phase_accuracy_figure(runs)
  boxes = boxes_of_labels(figure)
  assert set(boxes) == {
    f"{run['last_accuracy']:.1f}  {method}" for method, (run,) in runs.items()
  }
  assert_apart(boxes)
  (axes,) = figure.axes
  whole = figure.bbox
  for box in boxes.values():
    assert axes.bbox.x1 < box.x0 and box.x1 <= whole.x1
  (legend,) = figure.legends
  assert len(legend.texts) == len({family_of(m).key for m in METHODS}) <= 6


def test_ours_are_strong_and_rivals_are_muted():
  runs = {m: [make_run(50.0, m)] for m in ("drr", "icarl", "lucir")}
  (axes,) = figures.phase_accuracy_figure(runs).axes
  ours, *rivals = axes.lines
  assert len({to_hex(line.get_color()) for line in rivals}) == 1
  for line in rivals:
    assert line.get_color() != ours.get_color()
    assert line.get_linewidth() < ours.get_linewidth()
    assert line.get_zorder() < ours.get_zorder()


def test_accuracies_are_shown_from_0_to_100():
  figure = figures.phase_accuracy_figure({"a": [make_run(79.0)]})
  assert figure.axes[0].get_ylim() == (0, 100)
  figure = figures.accuracy_against_bytes_figure([make_row("a", 79.0)])
  assert figure.axes[0].get_ylim() == (0, 100)


def test_crowded_points_have_names_that_can_be_read():
  rows = [
    make_row(method, 60.0 + number % 5, method=method)
    for number, method in enumerate(METHODS[:12])
  ]
  rows.append(make_row("base", None))
  figure = figures.accuracy_against_bytes_figure(rows)
  boxes = boxes_of_labels(figure)
  assert set(boxes) == set(METHODS[:12])
  assert_apart(boxes)


@pytest.mark.parametrize("bytes_", [0, 3 * 10**4, 5 * 10**8])
def test_any_number_of_bytes_has_a_place(bytes_):
  rows = [make_row("a", 50.0), {**make_row("b", 40.0), "total_bytes": bytes_}]
  (axes,) = figures.accuracy_against_bytes_figure(rows).axes
  low, high = axes.get_xlim()
  assert low < bytes_ / 1e6 < high


def test_seeds_are_a_mean_in_a_band():
  figure = figures.phase_accuracy_figure(
    {"a": [make_run(60.0), make_run(70.0)]}
  )
  (axes,) = figure.axes
  (line,) = axes.lines
  assert line.get_xydata().tolist() == [[2, 80], [4, 65]]
  (band,) = axes.collections
  corners = {tuple(corner) for corner in band.get_paths()[0].vertices}
  assert {(2, 80), (4, 60), (4, 70)} <= corners


def test_a_deviation_is_a_line_up_and_down():
  rows = [make_row("a", 50.0, deviation=3.0), make_row("b", 40.0)]
  (axes,) = figures.accuracy_against_bytes_figure(rows).axes
  (bar,) = axes.collections
  assert bar.get_segments()[0].tolist() == [[2, 47], [2, 53]]


def test_the_axis_says_which_bytes_it_has():
  rows = [
    {**make_row("a", 50.0), "next_phase_bytes": 0},
    {**make_row("b", 40.0), "next_phase_bytes": 10**6},
  ]
  (axes,) = figures.accuracy_against_bytes_figure(rows).axes
  assert "MB that the next phase needs" in axes.get_xlabel()
  places = [c.lines[0].get_xdata()[0] for c in axes.containers]
  assert places == [0, 1]
  # A record of an older version knows only what was on the disk.
  rows[1]["next_phase_bytes"] = None
  (axes,) = figures.accuracy_against_bytes_figure(rows).axes
  assert "MB kept on the disk" in axes.get_xlabel()
  places = [c.lines[0].get_xdata()[0] for c in axes.containers]
  assert places == [2, 2]


def test_a_run_has_the_same_colour_in_both_figures():
  methods = ("drr", "icarl", "finetune")
  curves = figures.phase_accuracy_figure(
    {method: [make_run(50.0, method)] for method in methods}
  )
  points = figures.accuracy_against_bytes_figure(
    [make_row(method, 50.0, method=method) for method in methods]
  )
  (axes,) = points.axes
  by_name = {
    container.get_label(): container.lines[0] for container in axes.containers
  }
  for line in curves.axes[0].lines:
    point = by_name[line.get_label()]
    assert to_hex(point.get_color()) == to_hex(line.get_color())
