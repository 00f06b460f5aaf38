import pytest

from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import comparison, figures


def run(method, total, images, seed=3, gain=0.0):
  phases = [
    {
      "phase": number,
      "classes_seen": 2 + number,
      "accuracy": 80.0 + gain - number,
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
    "average_accuracy": 79.0 + gain,
    "average_accuracy_with_base": 79.5 + gain,
    "last_accuracy": 79.0 + gain,
    "forgetting": None,
    "seed": seed,
    "command": "python -m ibdrr_tf.compare",
  }


def test_bytes_are_shared_by_the_images_that_can_be_replayed():
  some, none = comparison.rows(
    {"a": [run("a", 1000, 8)], "b": [run("b", 500, 0)]}
  )
  assert some["bytes_per_image"] == 125 and some["seconds"] == 3.0
  # 850 bytes of 8 images, and 150 of models that could serve 50,000.
  assert some["bytes_per_image_spread"] == 850 / 8 + 150 / 50_000
  assert none["bytes_per_image"] is None and none["total_bytes"] == 500


def test_the_table_has_a_line_for_each_method():
  text = comparison.markdown(
    {"one": [run("a", 1234567, 8)], "b": [run("b", 500, 0)]}
  )
  lines = [line for line in text.splitlines() if line.startswith("| ")]
  assert len(lines) == 8
  assert "| one | 3 | 79.00 | 79.50 | 79.00 | – | 1,234,567 | 8 |" in lines[2]
  assert lines[3].startswith("| b ") and "| 0 | – | – | 3 |" in lines[3]
  assert lines[6] == "| one | 80.00 | 79.00 |"
  assert "177,052 parameters" in text


def test_the_figure_shows_methods_that_keep_nothing():
  rows = comparison.rows({"a": [run("a", 1234567, 8)], "b": [run("b", 0, 0)]})
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


def test_seeds_of_one_run_make_one_row():
  groups = comparison.over_seeds(
    {
      "a-seed-7": run("a", 1002, 8, seed=7, gain=2.0),
      "a": run("a", 1000, 8, seed=0),
      # Not its seed, so this is but a name.
      "a-seed-8": run("a", 1000, 8, seed=9),
    }
  )
  assert list(groups) == ["a", "a-seed-8"]
  both, alone = comparison.rows(groups)
  assert both["seeds"] == [0, 7] and alone["seeds"] == [9]
  assert both["average_accuracy"] == 80.0 and both["forgetting"] is None
  assert both["total_bytes"] == 1001
  # Of 79 and 81: each is 1 from the mean, and one degree of freedom is left.
  deviation = both["deviations"]["average_accuracy"]
  assert deviation == pytest.approx(2**0.5)
  assert both["deviations"]["forgetting"] is None
  assert alone["deviations"] == {}
  text = comparison.markdown(groups)
  assert "| a | 0, 7 | 80.00 ± 1.41 | 80.50 ± 1.41 | 80.00 ± 1.41 | – |" in text
  assert "| a | 81.00 ± 1.41 | 80.00 ± 1.41 |" in text
  assert "| a-seed-8 | 80.00 | 79.00 |" in text


def test_seeds_that_do_not_belong_together_are_refused():
  first = run("a", 1, 1, seed=0)
  with pytest.raises(UserError, match="two runs a of seed 0"):
    comparison.over_seeds({"a": first, "a-seed-0": first})
  wider = run("a", 1, 1, seed=1)
  wider["backbone"] = {"name": "resnet18 of width 16", "parameters": 702756}
  with pytest.raises(UserError, match="have different networks"):
    comparison.rows({"a": [first, wider]})
  other = run("b", 1, 1, seed=1)
  with pytest.raises(UserError, match="a-seed-1 is of b"):
    comparison.over_seeds({"a": first, "a-seed-1": other})
