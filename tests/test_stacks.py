"""What one stack writes, the other reads; needs the environments of both."""

import pathlib
import subprocess

import pytest
import stack_files
import tensorflow as tf

ROOT = pathlib.Path(__file__).parents[1]
STACKS = {"2.14": ".venv", "2.17": ".venv-2.17"}
THIS = tf.__version__.rpartition(".")[0]
(OTHER,) = STACKS.keys() - {THIS}
PYTHON = ROOT / STACKS[OTHER] / "bin" / "python"

pytestmark = pytest.mark.skipif(
  not PYTHON.is_file(), reason=f"{PYTHON} is not there: see .ci/run"
)


def run_other(command, folder):
  result = subprocess.run(
    [PYTHON, ROOT / "tests" / "stack_files.py", command, folder],
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  assert f"{command} with TensorFlow {OTHER}." in result.stdout


def test_this_stack_reads_what_the_other_has_written(tmp_path):
  run_other("write", tmp_path)
  stack_files.check(tmp_path)


def test_the_other_stack_reads_what_this_one_has_written(tmp_path):
  stack_files.write(tmp_path)
  run_other("check", tmp_path)
