"""The scripts in examples/ run and show what they promise."""

import pathlib
import re
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def run(name):
  done = subprocess.run(
    [sys.executable, EXAMPLES / name],
    capture_output=True,
    text=True,
    check=False,
  )
  assert not done.returncode, done.stderr
  return done.stdout


def test_every_example_is_run():
  names = {path.name for path in EXAMPLES.glob("*.py")}
  assert names == {"compress_array.py", "replay_memory.py", "week.py"}


def test_compress_array():
  output = run("compress_array.py")
  pixels, packed = re.search(
    r"([\d,]+) bytes of pixels -> ([\d,]+) bytes", output
  ).groups()
  assert int(pixels.replace(",", "")) == 64 * 32 * 32 * 3
  assert int(packed.replace(",", "")) < 64 * 300
  assert float(re.search(r"PSNR ([\d.]+) dB", output)[1]) > 15
  assert "refused: " in output and "uint8" in output


def test_replay_memory():
  output = run("replay_memory.py")
  assert "400 images in" in output
  # Without memory, two of four classes would be known.
  assert int(re.search(r"classes: (\d+) %", output)[1]) > 70


@pytest.mark.parametrize("script", ["week.py"])
def test_week(script):
  output = run(script)
  lines = output.splitlines()
  assert lines[0].startswith("monday: 2 classes, 80 images")
  assert lines[1].startswith("wednesday: 3 classes, 120 images")
  assert lines[2].startswith("friday: 3 classes, 140 images")
  assert lines[3].count("sky") >= 4
  assert lines[4] == "after forgetting leaf: apple, sky"
