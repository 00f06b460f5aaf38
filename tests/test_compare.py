"""`python -m ibdrr_tf.compare` as a user meets it."""

import json
import signal
import sys

import pytest
from pages import Page

from ibdrr_tf import command_line, compare
from ibdrr_tf.evaluation.paired import mcnemar
from ibdrr_tf.evaluation.predictions import read_predictions

TINY = [
  "--phases=1",
  "--config.data.classes=4",
  "--config.data.shapes_train=12",
  "--config.data.shapes_test=5",
  "--config.classifier.backbone=resnet8",
  "--config.classifier.width=2",
  "--config.classifier.epochs=1",
  "--config.classifier.batch_size=16",
  "--config.memory.exemplars_per_class=3",
]


def run(monkeypatch, capsys, *arguments):
  """Runs the command here; returns its exit code and its output."""
  monkeypatch.setattr(sys, "argv", ["compare", *map(str, arguments)])
  handler = signal.getsignal(signal.SIGTERM)
  code = 0
  try:
    command_line.run(compare.main, "the same command goes on")
  except SystemExit as exit_:
    code = exit_.code
  finally:
    signal.signal(signal.SIGTERM, handler)
  return code, capsys.readouterr()


@pytest.mark.parametrize(
  ("arguments", "parts"),
  [
    ([], ["--methods", "finetune"]),
    (["--methods=,"], ["--methods"]),
    (["--methods=finetune"], ["--workdir"]),
    (["--methods=finetune,magic", "--workdir=w"], ["'magic'", "lucir"]),
    (["--methods=lwf,lwf", "--workdir=w"], ["lwf", "twice"]),
    (
      [
        "--methods=raw_replay,lwf",
        "--workdir=w",
        "--config.memory.total_bytes=9",
      ],
      ["total_bytes", "lwf"],
    ),
    (["--method=finetune", "--workdir=w"], ["--method"]),
    (["--runs=nowhere", "--workdir=w"], ["--runs", "nowhere"]),
    (["--methods=drr", "--codec=cifar10", "--workdir=w"], ["'cifar10'"]),
    (
      ["--methods=finetune", f"--workdir={__file__}/w"],
      ["comparison.md cannot be written"],
    ),
    (["--methods=lwf", "--seeds=0,x", "--workdir=w"], ["--seeds", "'x'"]),
    (["--methods=lwf", "--seeds=1,1", "--workdir=w"], ["lwf-seed-1", "twice"]),
    (["--methods=lwf", "--seeds=1", "--seed=1", "--workdir=w"], ["--seed "]),
    (["--methods=lwf", f"--seeds={2**70}", "--workdir=w"], ["config.seed"]),
    (["more", "--methods=finetune", "--workdir=w"], ["'more'"]),
    (
      ["--methods=lwf", "--class_orders=1,x", "--workdir=w"],
      ["--class_orders", "'x'"],
    ),
    (
      ["--methods=lwf", "--reference=drr", "--workdir=w"],
      ["--reference=drr", "lwf"],
    ),
    (
      ["--methods=lwf", "--config.data.validation=1.0", "--workdir=w"],
      ["config.data.validation=1.0"],
    ),
  ],
)
def test_mistakes_get_one_sentence_before_anything_runs(
  monkeypatch, capsys, tmp_path, arguments, parts
):
  monkeypatch.chdir(tmp_path)
  code, output = run(monkeypatch, capsys, *arguments)
  assert code == 2
  (line,) = output.err.strip().splitlines()
  for part in parts:
    assert part in line
  assert not list(tmp_path.iterdir())


def test_finished_runs_are_kept_and_others_added(monkeypatch, capsys, tmp_path):
  workdir = tmp_path / "w"
  arguments = [*TINY, f"--workdir={workdir}", "--reference=finetune"]
  code, output = run(monkeypatch, capsys, *arguments, "--methods=finetune")
  assert code == 0, output.err
  first = workdir / "finetune" / "results.json"
  before = first.stat().st_mtime_ns
  code, output = run(monkeypatch, capsys, *arguments, "--methods=lwf,finetune")
  assert code == 0, output.err
  assert first.stat().st_mtime_ns == before
  rows = json.loads((workdir / "comparison.json").read_text())
  assert [row["method"] for row in rows] == ["lwf", "finetune"]
  for row in rows:
    results = json.loads((workdir / row["method"] / "results.json").read_text())
    assert row["average_accuracy"] == results["average_accuracy"]
    assert row["total_bytes"] == results["phases"][-1]["memory"]["total"]
    assert row["next_phase_bytes"] > row["images_bytes"]  # Both start from it.
  # Image by image, as the files beside the results have it.
  kept = [
    read_predictions(workdir / name).right(1) for name in ("lwf", "finetune")
  ]
  p_value = mcnemar(*kept)
  assert rows[0]["paired"]["p_values"] == [p_value]
  assert rows[0]["paired"]["indistinguishable"] == (p_value > 0.05)
  assert 100 * kept[0].mean() == pytest.approx(rows[0]["last_accuracy"])
  text = (workdir / "comparison.md").read_text()
  assert text.strip() in output.out
  page = Page((workdir / "report.html").read_text())
  boxes = [box["value"] for box in page.find("input", type="checkbox")]
  assert sorted(boxes) == ["finetune", "lwf"]
  for name in ("phase_accuracy", "accuracy_against_bytes"):
    data = (workdir / f"{name}.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert f"{name}.png" in text
  (workdir / "finetune").rename(tmp_path / "old")
  (workdir / "lwf" / "results.json").rename(tmp_path / "other.json")
  both = f"--runs={tmp_path / 'old'},{tmp_path / 'other.json'}"
  code, output = run(
    monkeypatch,
    capsys,
    both,
    "--reference=old",
    f"--workdir={tmp_path / 'v'}",
  )
  assert code == 0, output.err
  again = json.loads((tmp_path / "v" / "comparison.json").read_text())
  assert [row.pop("name") for row in again] == ["old", "other"]
  # Of a file alone, no predictions are known.
  assert again[1]["paired"]["p_values"] == []
  for row in (*again, *rows):
    del row["paired"], row["difference"]
  assert [{**row, "name": row["method"]} for row in again] == rows[::-1]
  code, output = run(
    monkeypatch, capsys, both, "--methods=other", f"--workdir={tmp_path / 'v'}"
  )
  assert code == 2 and "other twice" in output.err
  # This one has seed 0 already, which is known before anything runs.
  (tmp_path / "old").rename(tmp_path / "finetune")
  again = f"--runs={tmp_path / 'finetune'}", f"--workdir={tmp_path / 'u'}"
  code, output = run(
    monkeypatch, capsys, *TINY, *again, "--methods=finetune", "--seeds=1,0"
  )
  assert code == 2 and "two runs finetune of seed 0" in output.err
  assert not (tmp_path / "u").exists()
  # Nor can it be compared with one of other phases.
  other = json.loads((tmp_path / "other.json").read_text())
  other["phases"].pop()
  (tmp_path / "shorter.json").write_text(json.dumps(other))
  code, output = run(
    monkeypatch,
    capsys,
    f"--runs={tmp_path / 'other.json'},{tmp_path / 'shorter.json'}",
    *("--methods=finetune", f"--workdir={tmp_path / 'u'}"),
  )
  assert code == 2 and "only finished runs of the same data" in output.err
  assert not (tmp_path / "u").exists()
  code, output = run(
    monkeypatch,
    capsys,
    f"--runs={tmp_path / 'other.json'},{tmp_path / 'shorter.json'}",
    *("--mixed", f"--workdir={tmp_path / 'u'}"),
  )
  assert code == 0 and "**These runs differ" in output.out


def test_seeds_run_one_by_one_and_make_one_row(monkeypatch, capsys, tmp_path):
  workdir = tmp_path / "w"
  code, output = run(
    monkeypatch,
    capsys,
    *TINY,
    "--methods=finetune",
    "--seeds=1,4",
    "--class_orders=natural",
    "--config.data.validation=0.25",
    f"--workdir={workdir}",
  )
  assert code == 0, output.err
  each = [
    json.loads((workdir / name / "results.json").read_text())
    for name in (
      "finetune-order-natural-seed-1",
      "finetune-order-natural-seed-4",
    )
  ]
  assert [results["seed"] for results in each] == [1, 4]
  (row,) = json.loads((workdir / "comparison.json").read_text())
  assert row["name"] == "finetune" and row["seeds"] == [1, 4]
  lasts = [results["last_accuracy"] for results in each]
  assert row["last_accuracy"] == pytest.approx(sum(lasts) / 2)
  assert "| finetune | 1, 4 |" in output.out
  # A quarter of twelve images of each of four classes.
  assert each[0]["data"]["evaluated_images"] == 12
  assert each[0]["data"]["training_images"] == 36
  report = workdir / "finetune-order-natural-seed-1" / "report.md"
  assert "evaluated on | validation images" in report.read_text()
