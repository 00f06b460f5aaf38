import pytest

from ibdrr_tf.errors import UserError
from ibdrr_tf.evaluation import comparison, figures


def run(method, total, images, seed=3, gain=0.0, **data):
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
    "data": data,
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
  start = "| one | 3 | 79.00 | 79.50 | 79.00 " + "| – " * 6
  assert lines[2].startswith(f"{start}| 1,234,567 | 8 |")
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


def test_other_data_is_refused_and_named():
  same = {"class_order": "1", "image_size": 32, "evaluated_images": 90}
  runs = {"a": run("a", 1, 1, **same), "old": run("b", 1, 1)}
  # Other orders may have other classes, and so other numbers of images.
  other = {"class_order": "2", "evaluated_images": 80}
  runs["a-order-2"] = run("a", 1, 1, **{**same, **other})
  comparison.check_alike(runs)
  for field, value, text in (
    ("image_size", 64, "b has images of 64 pixels a side"),
    ("evaluated_images", 80, "a has 90 evaluated images, b has 80"),
  ):
    runs["b"] = run("b", 1, 1, **{**same, field: value})
    with pytest.raises(UserError, match=text):
      comparison.check_alike(runs)
    # Allowed all the same, it is said below the table.
    groups = comparison.over_seeds({"a": runs["a"], "b": runs["b"]})
    assert "**These runs differ" in comparison.markdown(groups)


def test_orders_and_seeds_of_one_run_make_one_row():
  runs = {
    f"a-order-{order}-seed-{seed}": run("a", 1, 1, seed, class_order=order)
    for order in ("1", "2")
    for seed in (0, 7)
  }
  groups = comparison.over_seeds(runs)
  assert list(groups) == ["a"]
  (row,) = comparison.rows(groups)
  assert row["seeds"] == [0, 7, 0, 7] and row["class_orders"] == ["1", "2"]
  comparison.check_orders(groups)
  groups["b"] = [run("b", 1, 1, 0, class_order="2")]
  with pytest.raises(UserError, match=r"the order 1 and 2, b has .* 2:"):
    comparison.check_orders(groups)


def test_runs_of_other_lengths_have_one_table():
  short = run("b", 1, 1)
  short["phases"].pop()
  text = comparison.markdown({"b": [short], "a": [run("a", 1, 1)]})
  assert "| b | 80.00 | – |" in text and "| a | 80.00 | 79.00 |" in text


def test_rows_are_compared_with_the_reference_and_the_upper_bound():
  groups = {
    "drr": [run("drr", 1, 1, seed) for seed in (0, 1)],
    "upper_bound": [run("upper_bound", 1, 1, s, gain=4.0) for s in (0, 1, 2)],
    "c": [run("c", 1, 1, 0, gain=1.0), run("c", 1, 1, 1, gain=-2.0)],
  }
  drr, bound, c = comparison.rows(groups)
  assert drr["paired"] is None and drr["intransigence"] == 4.0
  assert bound["paired"]["pairs"] == 2
  assert bound["paired"]["difference"] == 4.0
  assert bound["paired"]["indistinguishable"] is False
  # Of 1 and -2: the error is 3 / 2, and t of one degree of freedom is 12.706.
  assert c["paired"]["interval"] == pytest.approx(1.5 * 12.7062, rel=1e-4)
  assert c["difference"] == "-0.50 ± 19.06 ≈"
  assert c["intransigence_by_phase"] == [4.5, 4.5]
  assert bound["intransigence"] == 0.0
