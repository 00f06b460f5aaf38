"""Several replicas learn what one does: single steps, and whole runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def steps():
  script = Path(__file__).with_name("replica_steps.py")
  result = subprocess.run(
    [sys.executable, script],
    capture_output=True,
    text=True,
    timeout=600,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  return json.loads(result.stdout.splitlines()[-1])


@pytest.mark.parametrize("stage", ["classifier", "vqvae", "bitswap"])
def test_a_step_on_two_replicas_is_that_on_one(steps, stage):
  differences = steps[stage]["differences"]
  worst = max(differences, key=differences.get)
  assert differences[worst] < 2e-3, worst
  # All weights have moved, so there was something to compare.
  assert steps[stage]["changed"] >= len(differences) - 2


def test_codebooks_are_the_same_on_all_replicas(steps):
  assert steps["vqvae"]["same_codebooks"]
