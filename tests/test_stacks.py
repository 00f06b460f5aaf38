"""What one stack writes, the other reads; needs the environments of both."""

import pathlib
import subprocess

import pytest
import stack_files
import tensorflow as tf

ROOT = pathlib.Path(__file__).parents[1]
(OTHER,) = {"2.14", "2.17"} - {tf.__version__.rpartition(".")[0]}
# Environments as launch/ makes them.
FOUND = sorted(
  ROOT.glob(
    f".venv*/lib/python3.*/site-packages/tensorflow-{OTHER}.*.dist-info"
  )
)

pytestmark = pytest.mark.skipif(
  not FOUND, reason=f"no .venv* has TensorFlow {OTHER}: see .ci/run"
)


def run_other(command, folder):
  python = FOUND[0].parents[3] / "bin" / "python"
  result = subprocess.run(
    [python, ROOT / "tests" / "stack_files.py", command, folder],
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
