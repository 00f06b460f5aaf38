"""The command as a user meets it: mistakes, refusals and interruptions."""

import json
import os
import resource
import signal
import sys

import numpy as np
import pytest
from pages import Page
from PIL import Image
from processes import accuracies, start, wait_for

from ibdrr_tf import command_line, main

# A run of seconds: few generated images, a thin network, two phases.
TINY = [
  "--phases=1",
  "--method=raw_replay",
  "--config.data.classes=4",
  "--config.data.shapes_train=20",
  "--config.data.shapes_test=5",
  "--config.classifier.backbone=resnet8",
  "--config.classifier.width=2",
  "--config.classifier.epochs=3",
  "--config.classifier.batch_size=16",
  "--config.memory.exemplars_per_class=5",
]


def run_in_process(monkeypatch, capsys, *arguments):
  """Runs the command here; returns its exit code and standard error."""
  monkeypatch.setattr(sys, "argv", ["main", *map(str, arguments)])
  code = 0
  handler = signal.getsignal(signal.SIGTERM)
  try:
    command_line.run(main.main, "--resume goes on")
  except SystemExit as exit_:
    code = exit_.code
  finally:
    signal.signal(signal.SIGTERM, handler)
  return code, capsys.readouterr()


def assert_one_sentence(code, error, *parts):
  assert code == 2
  lines = error.strip().splitlines()
  assert len(lines) == 1 and lines[0].startswith("ibdrr_tf: error: ")
  for part in parts:
    assert part in lines[0]


@pytest.mark.parametrize(
  ("arguments", "parts"),
  [
    (["--method=magic"], ["'magic'", "raw_replay"]),
    (["--dataset=cifar1000"], ["cifar1000"]),
    (["--dataset=folder"], ["--data_dir"]),
    (["--dataset=folder", "--data_dir=/not/there"], ["/not/there"]),
    (["--config=configs/nothing.py"], ["configs/nothing.py"]),
    (["--config.classifier.epoch=3"], ["config.classifier.epochs"]),
    (["--config.clasifier.epochs=3"], ["config.classifier.epochs"]),
    (["--config.classifier.epochs=many"], ["epochs", "many"]),
    (["--config.classifier.epochs=0"], ["epochs=0", "1 or more"]),
    (["--config.classifier.backbone=vgg"], ["vgg", "resnet18"]),
    (["--config.memory.selection=best"], ["best", "herding"]),
    (["--config.memory.quality=101"], ["quality=101", "0 to 100"]),
    (["--config.memory.total_bytes=-1"], ["total_bytes=-1"]),
    (
      ["--method=gfr", "--config.memory.total_bytes=9"],
      ["total_bytes", "gfr", "no images"],
    ),
    (
      ["--config.memory.information_back=all"],
      ["memory.information_back", "'all'", "exemplars"],
    ),
    (
      ["--method=drr", "--config.memory.information_back=star"],
      ["information_back=star", "--method=drr", "ib_drr_star", "webp_replay"],
    ),
    (
      ["--method=ib_drr", "--config.memory.information_back=star"],
      ["information_back=star", "--method=ib_drr"],
    ),
    (["--config.icarl.loss=hinge"], ["hinge", "sigmoid"]),
    (["--config.gfr.critic_steps=0"], ["critic_steps=0", "1 or more"]),
    (["--config.lucir.margin=-1.0"], ["lucir.margin=-1.0"]),
    (["--config.lwf.base.learning_rate=0.0"], ["lwf.base.learning_rate"]),
    (["--config.lwf.increment.milestones=(2.0,)"], ["lwf.increment", "2.0"]),
    (["--config=configs/nothing.py:lucir"], ["configs/nothing.py"]),
    (["--phases=0"], ["phases=0", "--phases=1"]),
    (["--phases=3"], ["phases=3", "1, 2, 5, 10"]),
    (["--phases=x"], ["phases", "x"]),
    (["--phasen=5"], ["--phasen", "--phases"]),
    (["--distribute=cloud"], ["cloud", "mirrored"]),
    (["--seed=-1"], ["seed=-1"]),
    (["--seed=2147483648"], ["seed=2147483648", "0 to 2147483647"]),
    (["--config.classifier.milestones=('a',)"], ["milestones", "0 to 1"]),
    (["--config.vqvae.residual_channels=0"], ["residual_channels=0"]),
    (["--config.vqvae.learning_rate=0.0"], ["learning_rate", "above 0"]),
    (["--config.vqvae.layout=flat"], ["config.vqvae.layout='flat'", "paper"]),
    (["--codec=cifar10"], ["'cifar10'", "cifar100_depth1"]),
    (
      ["--codec=", "--config.vqvae.start_from=nowhere"],
      ["'nowhere'", "cifar100"],
    ),
    (["--config.mnemonics.pixel_momentum=2.0"], ["pixel_momentum=2.0"]),
    (["--config.vqvae.codebook_size=500"], ["codebook_size=500", "power of"]),
    (["--config.vqvae.bottom_depth=64"], ["bottom_depth is 257", "255"]),
    (["--config.bitswap.group=65536"], ["group=65536", "65535"]),
    (["--config.data.image_size=8000"], ["ram_bytes"]),
    (["--config.data.image_size=100000"], ["image_size=100000", "8192"]),
    (["extra"], ["'extra'", "--help"]),
  ],
)
def test_mistakes_get_one_sentence(
  monkeypatch, capsys, tmp_path, arguments, parts
):
  monkeypatch.chdir(tmp_path)
  code, output = run_in_process(monkeypatch, capsys, *arguments)
  assert_one_sentence(code, output.err, *parts)
  assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
  ("text", "part"),
  [
    ("config = 1", "get_config"),
    ("def get_config():\n  return 3", "no ConfigDict"),
    ("def get_config():\n  raise OSError('boom')", "boom"),
    (
      "from ibdrr_tf import config\n"
      "def get_config():\n"
      "  c = config.get_config()\n"
      "  c.classifier.epoch = 3\n"
      "  return c",
      "config.classifier.epoch is unknown",
    ),
  ],
)
def test_broken_config_files(monkeypatch, capsys, tmp_path, text, part):
  path = tmp_path / "broken.py"
  path.write_text(text)
  code, output = run_in_process(monkeypatch, capsys, f"--config={path}")
  assert_one_sentence(code, output.err, part)


def test_flags_override_the_config_wherever_it_stands(
  monkeypatch, capsys, tmp_path
):
  path = tmp_path / "mine.py"
  path.write_text(
    "from ibdrr_tf import config\n"
    "def get_config():\n"
    "  c = config.get_config()\n"
    "  c.scenario.phases = 10\n"
    "  c.method = 'finetune'\n"
    "  return c\n"
  )
  workdir = tmp_path / "w"
  code, _ = run_in_process(
    monkeypatch,
    capsys,
    *TINY,
    "--config.classifier.epochs=1",
    "--method=upper_bound",
    f"--workdir={workdir}",
    f"--config={path}",
  )
  config = json.loads((workdir / "config.json").read_text())
  assert code == 0
  assert config["method"] == "upper_bound"
  assert config["scenario"]["phases"] == 1
  assert config["classifier"]["epochs"] == 1


def test_help_lists_flags_and_ends_well(monkeypatch, capsys):
  code, output = run_in_process(monkeypatch, capsys, "--help")
  assert code == 0
  for flag in ("--phases", "--method", "--[no]resume", "--config"):
    assert flag in output.out


def test_workdirs_are_never_overwritten(monkeypatch, capsys, tmp_path):
  def run(*more):
    return run_in_process(
      monkeypatch, capsys, *TINY, "--method=finetune", *more
    )

  workdir = tmp_path / "w"
  assert run(f"--workdir={workdir}", "--resume")[0] == 0  # Nothing there yet.
  before = accuracies(workdir)
  code, output = run(f"--workdir={workdir}")
  assert_one_sentence(code, output.err, "--resume")
  code, output = run(f"--workdir={workdir}", "--seed=1", "--resume")
  assert_one_sentence(code, output.err, "config.seed", str(workdir))
  code, output = run(f"--workdir={workdir}", "--resume")  # It is finished.
  assert code == 0 and "accuracy after the last phase" in output.out
  assert accuracies(workdir) == before

  foreign = tmp_path / "foreign"
  foreign.mkdir()
  (foreign / "thesis.txt").write_text("precious")
  code, output = run(f"--workdir={foreign}")
  assert_one_sentence(code, output.err, "thesis.txt")
  assert [p.name for p in foreign.iterdir()] == ["thesis.txt"]

  code, output = run(f"--workdir={foreign}/thesis.txt")
  assert_one_sentence(code, output.err, "thesis.txt", "cannot be written")


def test_the_same_command_twice_makes_two_runs(monkeypatch, capsys, tmp_path):
  monkeypatch.chdir(tmp_path)
  arguments = [*TINY, "--method=finetune", "--config.classifier.epochs=1"]
  for _ in range(2):
    assert run_in_process(monkeypatch, capsys, *arguments)[0] == 0
  runs = sorted((tmp_path / "runs").iterdir())
  assert len(runs) == 2
  code, _ = run_in_process(monkeypatch, capsys, *arguments, "--resume")
  assert code == 0 and len(list((tmp_path / "runs").iterdir())) == 2
  # The same seed gives the same table and network; another one does not.
  assert accuracies(runs[0]) == accuracies(runs[1])
  assert run_in_process(monkeypatch, capsys, *arguments, "--seed=1")[0] == 0
  (other,) = set((tmp_path / "runs").iterdir()) - set(runs)
  weights = [
    (run / "classifier/network-001.npz").read_bytes() for run in (*runs, other)
  ]
  assert weights[0] == weights[1] != weights[2]


def test_full_disks_are_reported(tmp_path):
  """A limit on file size makes writes fail half-way, for root as well."""
  # Those of a tool that measures coverage would fail too, and loudly.
  quiet = {k: v for k, v in os.environ.items() if not k.startswith("COVERAGE")}
  process = start(
    *TINY,
    "--config.classifier.width=16",
    f"--workdir={tmp_path / 'w'}",
    preexec_fn=lambda: resource.setrlimit(
      resource.RLIMIT_FSIZE, (200_000, 200_000)
    ),
    env=quiet,
  )
  _, error = process.communicate(timeout=120)
  assert_one_sentence(process.returncode, error, "could not be written")
  assert "File too large" in error


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
  workdir = tmp_path_factory.mktemp("whole") / "w"
  process = start(*TINY, f"--workdir={workdir}")
  output, error = process.communicate(timeout=300)
  assert process.returncode == 0, error
  assert "average accuracy without base phase" in output
  assert max(len(line) for line in output.splitlines()[2:9]) <= 80
  report, classify, tensorboard = output.splitlines()[-3:]
  assert report == f"see   {workdir}/report.html"
  assert classify.endswith(f"ibdrr classify IMAGE --state={workdir}")
  assert tensorboard.endswith(f"tensorboard --logdir={workdir}")
  assert error == ""  # Nothing to warn of.
  return workdir


def test_a_run_fills_its_workdir(uninterrupted):
  results = json.loads((uninterrupted / "results.json").read_text())
  assert {
    "config.json",
    "results.json",
    "report.html",
    "report.md",
    "phase_accuracy.png",
    "tensorboard",
    "classifier",
    "memory",
    "state.json",
  } <= {p.name for p in uninterrupted.iterdir()}
  assert [p["phase"] for p in results["phases"]] == [0, 1]
  assert [p["classes_seen"] for p in results["phases"]] == [2, 4]
  assert list(results["phases"][0]) == [
    "phase",
    "classes_seen",
    "accuracy",
    "accuracy_by_phase_group",
    "train_seconds",
    "memory",
  ]
  kept = sum(p.stat().st_size for p in (uninterrupted / "memory").iterdir())
  assert results["phases"][1]["memory"]["total"] == kept
  assert results["phases"][1]["memory"]["images"] == 20
  assert results["command"].startswith("python -m ibdrr_tf.main --phases=1")
  assert results["last_accuracy"] == results["phases"][1]["accuracy"]
  names = json.loads(
    (uninterrupted / "classifier/class_names.json").read_text()
  )
  assert len(names) == 4
  page = Page((uninterrupted / "report.html").read_text())
  shown = [picture["alt"] for picture in page.find("img")]
  # Raw exemplars: three of each class, each beside the original.
  assert sorted(shown) == sorted(
    f"{name}, {kind}"
    for name in names
    for kind in ("original", "from memory")
    for _ in range(3)
  )
  captions = [caption.text for caption in page.find("figcaption")]
  assert all("no loss" in caption for caption in captions)
  kinds = {path.name for path in (uninterrupted / "tensorboard").iterdir()}
  assert kinds == {"classifier", "phases"}


def test_a_phase_that_was_learned_but_not_written_down_is_evaluated_again(
  monkeypatch, capsys, tmp_path
):
  workdir = tmp_path / "w"
  arguments = [*TINY, "--method=finetune", f"--workdir={workdir}"]
  assert run_in_process(monkeypatch, capsys, *arguments)[0] == 0
  before = accuracies(workdir)
  network = (workdir / "classifier/network-001.npz").stat().st_mtime_ns
  results = json.loads((workdir / "results.json").read_text())
  results["phases"].pop()  # As if killed right after the last step.
  (workdir / "results.json").write_text(json.dumps(results))
  code, _ = run_in_process(monkeypatch, capsys, *arguments, "--resume")
  assert code == 0 and accuracies(workdir) == before
  path = workdir / "classifier/network-001.npz"
  assert path.stat().st_mtime_ns == network
  # A lost network is not replaced by another one.
  path.unlink()
  (workdir / "results.json").write_text(json.dumps(results))
  code, output = run_in_process(monkeypatch, capsys, *arguments, "--resume")
  assert_one_sentence(code, output.err, "network-001.npz", "missing")


def test_a_hopeless_byte_budget_is_refused_before_training(
  monkeypatch, capsys, tmp_path
):
  for method in ("icarl", "webp_replay"):
    workdir = tmp_path / method
    code, output = run_in_process(
      monkeypatch,
      capsys,
      *TINY,
      f"--method={method}",
      "--config.memory.total_bytes=9",
      f"--workdir={workdir}",
    )
    assert_one_sentence(code, output.err, "9 bytes is too small", "would do")
    assert not (workdir / "checkpoints/step-000").exists()


def test_other_data_is_another_run(monkeypatch, capsys, tmp_path):
  def make_folder(name, count):
    for split in ("train", "val"):
      for label in "ab":
        folder = tmp_path / name / split / label
        folder.mkdir(parents=True)
        for number in range(count):
          pixels = np.full((64, 64, 3), 40 * number, np.uint8)
          Image.fromarray(pixels).save(folder / f"{number}.png")
    return f"--data_dir={tmp_path / name}"

  arguments = [
    "--dataset=folder",
    "--phases=1",
    "--method=finetune",
    "--config.classifier.epochs=1",
    f"--workdir={tmp_path / 'w'}",
  ]
  first, second = make_folder("first", 3), make_folder("second", 4)
  # At 64 pixels, with the demo's narrow network: once a crash in oneDNN.
  assert run_in_process(monkeypatch, capsys, *arguments, first)[0] == 0
  code, output = run_in_process(
    monkeypatch, capsys, *arguments, second, "--resume"
  )
  assert_one_sentence(code, output.err, "data_fingerprint")


def test_a_run_that_is_interrupted_again_and_again_reaches_the_same_table(
  uninterrupted, tmp_path
):
  """One run, stopped at four points in three ways, then brought to its end."""
  workdir = tmp_path / "w"
  arguments = [*TINY, f"--workdir={workdir}", "--resume"]
  killed = -signal.SIGKILL
  stops = 0
  for when, how, code in (
    ("config.json", signal.SIGKILL, killed),
    ("checkpoints/step-000/classifier/ckpt-1.index", signal.SIGINT, 130),
    ("memory/exemplars-000.tfrecord", signal.SIGKILL, killed),
    ("checkpoints/step-001/classifier/ckpt-1.index", signal.SIGTERM, 143),
  ):
    if (workdir / when).exists():
      continue  # A busy machine may have passed this point before the signal.
    stops += 1
    process = start(*arguments)
    wait_for((workdir / when).exists, process)
    os.kill(process.pid, how)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code
    if how != signal.SIGKILL:
      assert error.count("\n") == 1 and "--resume" in error
  assert stops >= 3
  process = start(*arguments)
  _, error = process.communicate(timeout=300)
  assert process.returncode == 0, error
  assert accuracies(workdir) == accuracies(uninterrupted)
