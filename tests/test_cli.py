"""The commands of a learner, as a person at a shell meets them."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from pages import Page
from PIL import Image
from tiny_codec import write_codec

from ibdrr_tf import cli, learner_commands, state
from ibdrr_tf.methods import METHODS

TINY = [
  "--config.classifier.backbone=resnet8",
  "--config.classifier.width=2",
  "--config.classifier.epochs=1",
  "--config.classifier.updates=0",
  "--config.classifier.batch_size=8",
]


def write_images(folder, classes, count, seed=0, size=16):
  generator = np.random.default_rng(seed)
  for name in classes:
    (folder / name).mkdir(parents=True)
    for number in range(count):
      image = generator.integers(0, 256, (size, size, 3)).astype(np.uint8)
      Image.fromarray(image).save(folder / name / f"{number:02d}.png")


@pytest.fixture
def ibdrr(monkeypatch, capsys):
  """Runs the console script here; gives exit code, output and errors."""

  def run(*arguments):
    monkeypatch.setattr(sys, "argv", ["ibdrr", *map(str, arguments)])
    code = 0
    try:
      cli.main()
    except SystemExit as left:
      code = left.code
    output = capsys.readouterr()
    return code, output.out, output.err

  return run


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
  """A folder with a codec, and a state that has learned two classes."""
  root = tmp_path_factory.mktemp("learned")
  write_codec(root / "codec", 0)
  write_images(root / "a", ["cat", "dog"], 10)
  command = [sys.executable, "-m", "ibdrr_tf.cli", "learn", "a", "--state=S"]
  done = subprocess.run(
    [*command, "--method=drr", "--codec=codec", *TINY],
    cwd=root,
    capture_output=True,
    text=True,
    check=False,
  )
  assert not done.returncode, done.stderr
  shutil.rmtree(root / "a")
  return root, done.stdout


@pytest.fixture
def root(learned, tmp_path, monkeypatch):
  shutil.copytree(learned[0], tmp_path / "r")
  monkeypatch.chdir(tmp_path / "r")
  return tmp_path / "r"


def test_a_step_says_what_is_known_now(learned):
  output = learned[1]
  assert "18 images learned, 2 new classes (cat, dog)" in output
  assert "2 images set aside" in output
  assert "images remembered: 20 of 16 x 16 pixels" in output
  assert "accuracy on images set aside: " in output
  assert output.rstrip().endswith("next: ibdrr classify IMAGE --state=S")


def test_old_images_are_gone_and_more_come(root, ibdrr):
  write_images(root / "b", ["ant", "cat"], 5, 1, size=24)
  code, output, error = ibdrr("learn", "b", "--state=S", "--seed=3")
  assert code == 0, error
  assert "8 images learned, 1 new class (ant)" in output
  assert "other classes" in output and "as memory gives them back" in output
  code, output, _ = ibdrr("learn", "b", "--state=S", "--seed=3")
  assert code == 0 and "has learned this data already" in output
  assert state.read_state(root / "S").step == 1


def test_classify_files_folders_and_json(root, ibdrr):
  write_images(root / "new", ["x"], 3, 5, size=40)
  code, output, _ = ibdrr("classify", "new/x/00.png", "new", "--state=S")
  lines = output.splitlines()
  assert code == 0 and len(lines) == 4
  assert lines[0].startswith("new/x/00.png: ") and lines[0].endswith(" %")
  assert lines[1].replace("new/x/00", "") == lines[0].replace("new/x/00", "")
  code, output, _ = ibdrr("classify", "new", "--state=S", "--json")
  entries = json.loads(output)
  assert [entry["image"] for entry in entries] == [
    f"new/x/0{n}.png" for n in range(3)
  ]
  for entry in entries:
    assert set(entry["probabilities"]) == {"cat", "dog"}
    assert sum(entry["probabilities"].values()) == pytest.approx(1)
    best = max(entry["probabilities"], key=entry["probabilities"].get)
    assert entry["class"] == best
  code, output, _ = ibdrr("classify", "new/x/00.png", "--state=S", "--top=2")
  assert "cat" in output and "dog" in output


def test_evaluate_counts_unknown_classes_as_errors(root, ibdrr):
  write_images(root / "test", ["cat", "cow"], 4, 6)
  code, output, _ = ibdrr("evaluate", "test", "--state=S", "--json")
  result = json.loads(output)
  assert code == 0 and result["images"] == 8
  assert result["by_class"]["cow"] == 0 and result["unknown_classes"] == ["cow"]
  assert result["accuracy"] == pytest.approx(result["by_class"]["cat"] / 2)
  assert "not a known class" in ibdrr("evaluate", "test", "--state=S")[1]


def test_a_folder_of_photos_of_all_sizes_is_classified(root, ibdrr):
  for number, size in enumerate((16, 20, 33)):
    write_images(root / "photos", [f"{number}"], 1, number, size)
  code, output, error = ibdrr("classify", "photos", "--state=S")
  assert code == 0, error
  assert len(output.splitlines()) == 3


def test_evaluate_takes_validation_images_where_there_are_some(root, ibdrr):
  write_images(root / "both/train", ["cat", "dog"], 5, 6)
  write_images(root / "both/val", ["cat"], 3, 7)
  code, output, _ = ibdrr("evaluate", "both", "--state=S", "--json")
  result = json.loads(output)
  assert code == 0 and result["images"] == 3
  assert list(result["by_class"]) == ["cat"]


def test_broken_files_are_named_or_left_out(root, ibdrr):
  write_images(root / "b", ["ant", "cow"], 5, 9)
  (root / "b/ant/00.png").write_bytes(b"no image")
  code, _, error = ibdrr("learn", "b", "--state=S")
  assert code == 2 and "ant/00.png" in error and "--skip_broken" in error
  (root / "b/cow/01.png").write_bytes(b"no image")
  code, _, error = ibdrr("learn", "b", "--state=S")
  assert code == 2 and "ant/00.png" in error and "cow/01.png" in error
  assert "--skip_broken" in error
  code, output, error = ibdrr("learn", "b", "--state=S", "--skip_broken")
  assert code == 0 and "2 new classes (ant, cow)" in output
  assert "skipped 2 files" in error + output


def test_train_may_be_the_name_of_a_class(root, ibdrr):
  write_images(root / "vehicles", ["train", "bus"], 4, 8)
  code, output, error = ibdrr("learn", "vehicles", "--state=S")
  assert code == 0, error
  assert "2 new classes (bus, train)" in output


def test_status_writes_a_page(root, ibdrr):
  code, output, error = ibdrr("status", "--state=S", "--html=pages/s.html")
  assert code == 0 and "classes: 2 (cat, dog)" in output, error
  page = Page((root / "pages/s.html").read_text())
  pictures = [picture["alt"] for picture in page.find("img")]
  # What was stored; the originals are gone.
  assert pictures == ["cat, from memory"] * 3 + ["dog, from memory"] * 3
  accuracy = state.read_state(root / "S").steps[0]["accuracy"]["all"]
  assert page.find("circle")[0]["data-value"] == f"{accuracy:.2f}"
  (root / "file").write_text("")
  code, output, error = ibdrr("status", "--state=S", "--html=file/s.html")
  assert code == 2 and error.count("\n") == 1 and "file/s.html" in error


def test_status_and_forget(root, ibdrr):
  code, output, _ = ibdrr("status", "--state=S")
  assert code == 0 and "classes: 2 (cat, dog)" in output
  assert "step 0: 18 images, new classes cat, dog" in output
  assert json.loads(ibdrr("status", "--state=S", "--json")[1])["classes"] == [
    "cat",
    "dog",
  ]
  code, output, _ = ibdrr("forget", "cat", "--state=S")
  assert code == 0 and "ibdrr learn --retrain" in output
  assert "step 1: forgot cat" in ibdrr("status", "--state=S")[1]
  assert ibdrr("learn", "--retrain", "--state=S")[0] == 0
  assert state.read_state(root / "S").classes == ("dog",)


@pytest.mark.parametrize(
  ("arguments", "parts"),
  [
    (["lern"], ["'lern'", "learn, classify"]),
    (["learn", "codec", "--retrain", "--state=S"], ["--retrain", "codec"]),
    (["learn", "--state=S"], ["folder of classes is missing"]),
    (["learn", "b"], ["--state is missing"]),
    (["learn", "nowhere", "--state=S"], ["nowhere"]),
    (["learn", "codec", "--state=T", "--memory_bytes=-1"], ["--memory_bytes"]),
    (["learn", "codec", "--state=S", "--method=icarl"], ["method", "'drr'"]),
    (["learn", "codec", "--state=S", "--metod=drr"], ["--method"]),
    (["learn", "codec", "--state=T", "--plugin=no.py"], ["no.py"]),
    (["classify", "--state=S"], ["no image"]),
    (["classify", "nothing.png", "--state=S"], ["nothing.png"]),
    (["classify", "x.png", "--state=T"], ["no state in T", "ibdrr learn"]),
    (["status", "--state=T"], ["no state in T"]),
    (["status"], ["--state is missing"]),
    (["forget", "cow", "--state=S"], ["'cow'", "cat, dog"]),
  ],
)
def test_mistakes_get_one_sentence(root, ibdrr, arguments, parts):
  code, _, error = ibdrr(*arguments)
  assert code == 2
  (line,) = error.strip().splitlines()
  assert line.startswith("ibdrr_tf: error: ")
  for part in parts:
    assert part in line
  assert not (root / "T/state.json").exists()


@pytest.mark.parametrize("command", ["learn", "classify", "status", "run", ""])
def test_help_ends_well(ibdrr, command):
  code, output, _ = ibdrr(*filter(None, [command]), "--help")
  assert code == 0 and "ibdrr" in output and "--" in output


@pytest.mark.parametrize(
  "arguments", [["status", "--state=S"], ["--help"], ["learn", "--help"]]
)
def test_a_closed_pipe_ends_quietly(learned, arguments):
  """As `| head` does, which has closed it by the time there is more."""
  output, ours = os.pipe()
  os.close(output)
  done = subprocess.run(
    [sys.executable, "-m", "ibdrr_tf.cli", *arguments],
    cwd=learned[0],
    stdout=ours,
    stderr=subprocess.PIPE,
    check=False,
  )
  os.close(ours)
  assert done.stderr == b"" and done.returncode == 128 + signal.SIGPIPE


def test_names_that_are_not_utf_8_get_a_sentence(ibdrr, monkeypatch):
  """A folder from elsewhere, whose name TensorFlow would not take."""

  def fail(_):
    "caf\udce9".encode()

  monkeypatch.setitem(learner_commands.COMMANDS, "learn", fail)
  code, _, errors = ibdrr("learn", "caf\udce9", "--state=S")
  assert code == 2 and "is not UTF-8" in errors and "rename" in errors
  assert "Traceback" not in errors


def test_a_class_whose_name_is_not_utf_8_gets_a_sentence(root, ibdrr):
  write_images(root / "b", ["ant", "cow"], 5)
  (root / "b" / "ant").rename(os.fsdecode(b"b/caf\xe9"))
  before = (root / "S" / "state.json").read_bytes()
  code, _, errors = ibdrr("learn", "b", "--state=S")
  assert code == 2 and "is not UTF-8" in errors
  assert len(errors.splitlines()) == 1
  assert (root / "S" / "state.json").read_bytes() == before


def test_a_full_disk_leaves_the_state_as_it_was(root, ibdrr):
  """A limit on file size makes writes fail half-way, for root as well."""
  write_images(root / "b", ["ant", "cow"], 5)
  before = (root / "S" / "state.json").read_bytes()
  limits = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
  try:
    code, _, errors = ibdrr("learn", "b", "--state=S")
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert code == 2 and "could not be written (File too large)" in errors
  assert "make room, then the same command goes on" in errors
  assert len(errors.splitlines()) == 1
  assert (root / "S" / "state.json").read_bytes() == before
  code, output, _ = ibdrr("learn", "b", "--state=S")
  assert code == 0 and "2 new classes (ant, cow)" in output


def test_status_needs_no_tensorflow(learned):
  root, _ = learned
  code = (
    "import sys; sys.argv = ['ibdrr', 'status', '--state=S']\n"
    "from ibdrr_tf import cli; cli.main()\n"
    "assert 'tensorflow' not in sys.modules"
  )
  subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


def test_importing_the_package_is_quick_and_silent():
  code = (
    "import sys, ibdrr_tf\n"
    "assert 'tensorflow' not in sys.modules\n"
    "assert {'Learner', 'ReplayMemory', 'load_codec', 'Ledger', 'UserError',\n"
    "  'register_method', 'register_backbone'} <= set(dir(ibdrr_tf))\n"
    "from ibdrr_tf import UserError, Ledger\n"
    "assert 'tensorflow' not in sys.modules"
  )
  started = time.process_time()
  done = subprocess.run(
    [sys.executable, "-c", code], capture_output=True, text=True, check=True
  )
  assert done.stdout == done.stderr == ""
  assert time.process_time() - started < 5


PLUGIN = """
import tensorflow as tf
import ibdrr_tf
from ibdrr_tf.methods import from_last
from ibdrr_tf.replay.exemplar_memory import ExemplarMemory

ibdrr_tf.register_method("mine")(
  ibdrr_tf.Method(memory=ExemplarMemory, start=from_last)
)

@ibdrr_tf.register_backbone("tiny")
def tiny(x, width, synchronized, **options):
  x = tf.keras.layers.Conv2D(width, 3, activation="relu")(x)
  return tf.keras.layers.GlobalAveragePooling2D(name="features")(x)
"""


def test_a_plugin_brings_a_method_and_a_backbone(tmp_path, ibdrr, monkeypatch):
  monkeypatch.chdir(tmp_path)
  write_images(tmp_path / "a", ["cat", "dog"], 5)
  (tmp_path / "mine.py").write_text(PLUGIN)
  flags = ["--state=S", "--plugin=mine.py"]
  code, output, error = ibdrr(
    "learn",
    "a",
    *flags,
    *TINY,
    "--method=mine",
    "--config.classifier.backbone=tiny",
  )
  assert code == 0, error
  assert "2 new classes" in output
  assert ibdrr("classify", "a/cat/00.png", *flags)[0] == 0
  METHODS.pop("mine")
  code, _, error = ibdrr("classify", "a/cat/00.png", "--state=S")
  assert code == 2 and "'mine'" in error
