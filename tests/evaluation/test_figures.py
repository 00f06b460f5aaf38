"""Figures of many runs can be read."""

from matplotlib.colors import to_hex

from ibdrr_tf.evaluation import figures


def make_run(last):
  return {
    "dataset": "shapes",
    "backbone": {"name": "resnet18", "parameters": 100},
    "last_accuracy": last,
    "phases": [
      {"classes_seen": 2, "accuracy": 80.0},
      {"classes_seen": 4, "accuracy": last},
    ],
  }


def labels_and_styles(figure):
  (axes,) = figure.axes
  return [
    (line.get_label(), to_hex(line.get_color()), line.get_marker())
    for line in axes.lines
  ]


def test_curves_have_styles_of_their_own_and_the_best_comes_first():
  runs = {f"run {n}": [make_run(float(n * 7 % 15))] for n in range(15)}
  figure = figures.phase_accuracy_figure(runs)
  lines = labels_and_styles(figure)
  assert len({tuple(style) for _, *style in lines}) == 15
  lasts = [runs[name][0]["last_accuracy"] for name, *_ in lines]
  assert lasts == sorted(lasts, reverse=True)
  (legend,) = figure.legends
  assert [text.get_text() for text in legend.texts] == [n for n, *_ in lines]


def make_row(name, average, deviation=None, last=0.0):
  return {
    "name": name,
    "last_accuracy": last,
    "average_accuracy": average,
    "deviations": {"average_accuracy": deviation} if deviation else {},
    "total_bytes": 2 * 10**6,
  }


def test_points_have_styles_of_their_own_where_there_is_an_average():
  rows = [make_row(f"run {n}", 5.0 * n) for n in range(12)]
  rows.append(make_row("base", None))
  lines = labels_and_styles(figures.accuracy_against_bytes_figure(rows))
  assert len({tuple(style) for _, *style in lines}) == 12
  figure = figures.accuracy_against_bytes_figure(rows)
  (legend,) = figure.legends
  names = [text.get_text() for text in legend.texts]
  assert names == [f"run {n}" for n in range(11, -1, -1)]


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


def test_a_run_looks_the_same_in_both_figures():
  lasts = {"a": 10.0, "b": 90.0, "c": 50.0}
  curves = figures.phase_accuracy_figure(
    {name: [make_run(last)] for name, last in lasts.items()}
  )
  # By another order of merit.
  points = figures.accuracy_against_bytes_figure(
    [
      make_row(name, average, last=lasts[name])
      for name, average in (("c", 50.0), ("a", 70.0), ("b", 30.0))
    ]
  )
  (axes,) = points.axes
  by_name = {
    container.get_label(): container.lines[0] for container in axes.containers
  }
  for name, color, marker in labels_and_styles(curves):
    assert to_hex(by_name[name].get_color()) == color
    assert by_name[name].get_marker() == marker
