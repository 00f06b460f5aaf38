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
  runs = {f"run {n}": make_run(float(n * 7 % 15)) for n in range(15)}
  figure = figures.phase_accuracy_figure(runs)
  lines = labels_and_styles(figure)
  assert len({tuple(style) for _, *style in lines}) == 15
  lasts = [runs[name]["last_accuracy"] for name, *_ in lines]
  assert lasts == sorted(lasts, reverse=True)
  (legend,) = figure.legends
  assert [text.get_text() for text in legend.texts] == [n for n, *_ in lines]


def test_points_have_styles_of_their_own_where_there_is_an_average():
  rows = [
    {"name": f"run {n}", "average_accuracy": 5.0 * n, "total_bytes": n * 10**6}
    for n in range(12)
  ]
  rows.append({"name": "base", "average_accuracy": None, "total_bytes": 1})
  lines = labels_and_styles(figures.accuracy_against_bytes_figure(rows))
  assert [name for name, *_ in lines] == [f"run {n}" for n in range(11, -1, -1)]
  assert len({tuple(style) for _, *style in lines}) == 12
