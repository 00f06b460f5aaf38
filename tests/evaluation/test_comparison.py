import pytest

from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import comparison, figures


def run(method, total, images):
  phases = [
    {
      "phase": number,
      "classes_seen": 2 + number,
      "accuracy": 80.0 - number,
      "train_seconds": 1.5,
      "memory": {
        "total": total,
        "images": images,
        "codec_vqvae": 100,
        "codec_bitswap": 50,
        "other_models": 0,
      },
    }
    for number in range(2)
  ]
  return {
    "method": method,
    "dataset": "shapes",
    "backbone": {"name": "resnet18 of width 8", "parameters": 177052},
    "phases": phases,
    "average_accuracy": 79.0,
    "average_accuracy_with_base": 79.5,
    "last_accuracy": 79.0,
    "forgetting": None,
    "seed": 3,
    "command": "python -m ibdrr_tf.compare",
  }


def test_bytes_are_shared_by_the_images_that_can_be_replayed():
  some, none = comparison.rows({"a": run("a", 1000, 8), "b": run("b", 500, 0)})
  assert some["bytes_per_image"] == 125 and some["seconds"] == 3.0
  # 850 bytes of 8 images, and 150 of models that could serve 50,000.
  assert some["bytes_per_image_spread"] == 850 / 8 + 150 / 50_000
  assert none["bytes_per_image"] is None and none["total_bytes"] == 500


def test_the_table_has_a_line_for_each_method():
  runs = {"one": run("a", 1234567, 8), "b": run("b", 500, 0)}
  text = comparison.markdown(runs)
  lines = [line for line in text.splitlines() if line.startswith("| ")]
  assert len(lines) == 8
  assert "| one | 79.00 | 79.50 | 79.00 | – | 1,234,567 | 8 |" in lines[2]
  assert lines[3].startswith("| b ") and "| 0 | – | – | 3 |" in lines[3]
  assert lines[6] == "| one | 80.00 | 79.00 |"
  assert "177,052 parameters" in text


def test_the_figure_shows_methods_that_keep_nothing():
  rows = comparison.rows({"a": run("a", 1234567, 8), "b": run("b", 0, 0)})
  figure = figures.accuracy_against_bytes_figure(rows)
  (axes,) = figure.axes
  points = [line.get_xydata().tolist() for line in axes.lines]
  assert points == [[[1.234567, 79.0]], [[0.0, 79.0]]]
  assert figures.to_png(figure).startswith(b"\x89PNG")


def test_other_phases_are_refused():
  alike = {"a": run("a", 1, 1), "b": run("b", 2, 2)}
  comparison.check_alike(alike)
  alike["b"]["phases"].pop()
  with pytest.raises(
    UserError, match=r"a has learned \[2, 3\].*b has .* \[2\]"
  ):
    comparison.check_alike(alike)
