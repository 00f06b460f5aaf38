"""A mistake is answered at once, without the seconds that TensorFlow takes.

Every command runs in a process in which importing TensorFlow fails.
"""

import pathlib
import subprocess
import sys

import pytest

WITHOUT_TENSORFLOW = """
import runpy, sys
sys.modules["tensorflow"] = None
runpy.run_module(sys.argv.pop(1), run_name="__main__")
"""
CONFIGS = pathlib.Path(__file__).parents[1] / "configs"


def run(module, *arguments, cwd=None):
  return subprocess.run(
    [sys.executable, "-c", WITHOUT_TENSORFLOW, module, *arguments],
    capture_output=True,
    text=True,
    check=False,
    cwd=cwd,
  )


@pytest.mark.parametrize(
  ("command", "told"),
  [
    ("main --phasess=5", "did you mean --phases?"),
    ("main --phases=five", "phases"),
    ("main --phases=0", "phases=0 is too few"),
    ("main --config.classifier.widht=3", "config.classifier.width?"),
    ("main --config=nothing", "cifar100_small, demo, folder"),
    ("main --config=cifar100_baselines:nothing", "has no variant 'nothing'"),
    ("main --config=folder --data_dir=nothing", "'nothing' does not exist"),
    ("main --method=nothing", "there is no method 'nothing'"),
    ("main --codec=nothing", "there is no codec 'nothing'"),
    ("main --distribute=nothing", "--distribute=nothing is unknown"),
    ("main --config.classifier.backbone=vgg", "resnet18, resnet32, resnet8"),
    ("compare --methods=drr,nothing --workdir=w", "no method 'nothing'"),
    ("compare --methods=drr", "--workdir is missing"),
    ("bench nothing", "there is no measurement 'nothing'"),
    ("bench codec --cpu_devices=-1", "--cpu_devices=-1 is negative"),
    ("bench lossy --codec=nothing", "there is no codec 'nothing'"),
    ("codec train nothing -o x", "there is no nothing"),
    ("codec train -o x --config.vqvae.layout=x", "paper, subpixel"),
    ("cli learn . --state=S --method=nothing", "no method 'nothing'"),
    ("cli learn . --state=S --config.seed=-1", "config.seed=-1"),
    ("cli classify nothing.png --state=S", "there is no state in S"),
    ("cli evaluate nothing --state=S", "there is no folder nothing"),
    ("cli status --state=S", "there is no state in S"),
    ("cli nothing", "there is no command 'nothing'"),
  ],
)
def test_a_mistake_is_found_before_tensorflow_is_imported(
  command, told, tmp_path
):
  module, *arguments = command.split()
  done = run(f"ibdrr_tf.{module}", *arguments, cwd=tmp_path)
  assert done.returncode == 2, done.stderr
  assert done.stdout == "" and done.stderr.count("\n") == 1
  assert done.stderr.startswith("ibdrr_tf: error: ") and told in done.stderr
  assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
  "command",
  ["main --help", "compare --help", "bench --help", "codec --help", "cli"],
)
def test_help_needs_no_tensorflow(command):
  module, *arguments = command.split()
  done = run(f"ibdrr_tf.{module}", *arguments)
  assert done.returncode == 0, done.stderr
  assert "Traceback" not in done.stderr and len(done.stdout) > 400


def test_a_run_speaks_before_tensorflow_is_imported(tmp_path):
  done = run("ibdrr_tf.main", "--phases=1", cwd=tmp_path)
  assert done.stdout == "ibdrr_tf: TensorFlow is starting\n"
  assert "import of tensorflow halted" in done.stderr


@pytest.mark.parametrize("name", sorted(p.stem for p in CONFIGS.glob("*.py")))
def test_configs_are_found_by_name_and_by_path(name, tmp_path):
  """From any folder; the fields that they set are those of the file."""
  script = (
    "import sys; from absl import flags; from ibdrr_tf import command_line\n"
    "config, _ = command_line.parse_config(flags.FlagValues(), sys.argv)\n"
    "print(config)"
  )
  texts = [
    subprocess.run(
      [sys.executable, "-c", script, f"--config={config}"],
      capture_output=True,
      text=True,
      check=True,
      cwd=tmp_path,
    ).stdout
    for config in (name, CONFIGS / f"{name}.py")
  ]
  assert texts[0] == texts[1] and "classifier:" in texts[0]
