"""Several replicas learn what one does: single steps, and whole runs."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import TINY_REPLAY, start, wait_for

from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.manifest import MemoryFolder

TINY = [
  *TINY_REPLAY,
  "--distribute=multi_worker",
  # Several chains, so that each worker has some.
  "--config.bitswap.chain_images=16",
  "--config.bitswap.epochs=1",
  "--config.vqvae.epochs=1",
]


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


STAGES = (
  *("classifier", "vqvae", "bitswap", "ranking", "projection"),
  *("momentum", "adam"),
)


@pytest.mark.parametrize("stage", STAGES)
def test_steps_on_two_replicas_are_those_on_one(steps, stage):
  differences = steps[stage]["differences"]
  worst = max(differences, key=differences.get)
  assert differences[worst] < 2e-3, worst
  # All weights have moved, so there was something to compare.
  assert steps[stage]["changed"] >= len(differences) - 2


@pytest.mark.parametrize("stage", STAGES)
def test_all_replicas_have_the_same_variables(steps, stage):
  """Codebooks, and what optimisers remember, among them."""
  assert steps[stage]["apart"] == []


def free_ports(count):
  """Ports that no outgoing connection is given before a worker takes them."""
  found, drawn = [], random.Random(os.getpid() ^ time.monotonic_ns())
  while len(found) < count:
    port = drawn.randrange(10_000, 32_000)
    try:
      socket.create_server(("127.0.0.1", port)).close()
    except OSError:
      continue
    found.append(port)
  return found


def start_workers(count, *arguments):
  """Starts workers on loopback, the chief first."""
  addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
  workers = []
  for index in range(count):
    config = {
      "cluster": {"worker": addresses},
      "task": {"type": "worker", "index": index},
    }
    environment = os.environ | {"TF_CONFIG": json.dumps(config)}
    workers.append(start(*arguments, env=environment))
  return workers


def test_two_workers_run_all_stages_and_survive_a_kill(tmp_path):
  """One worker dies: the other says so and ends; both go on to the end."""
  workdir = tmp_path / "w"
  chief, other = start_workers(2, *TINY, f"--workdir={workdir}")
  first = workdir / "checkpoints/step-000/classifier/ckpt-1.index"
  wait_for(first.exists, chief, seconds=400)
  other.send_signal(signal.SIGKILL)
  began = time.monotonic()
  _, error = chief.communicate(timeout=120)
  assert chief.returncode == 75, error
  assert time.monotonic() - began < 60
  assert error.count("\n") == 1 and "--resume" in error
  other.communicate(timeout=60)

  workers = start_workers(2, *TINY, f"--workdir={workdir}", "--resume")
  outputs = [worker.communicate(timeout=600) for worker in workers]
  assert [worker.returncode for worker in workers] == [0, 0], outputs
  assert "accuracy after the last phase" in outputs[0][0]
  assert outputs[1] == ("", "")  # The chief speaks for all.
  # What one process leaves, and nothing beside it.
  assert {path.name for path in workdir.iterdir()} == {
    *(".lock", "classifier", "codec", "config.json", "memory"),
    *("phase_accuracy.png", "predictions.npz", "reconstructions.png"),
    *("report.html", "report.md", "results.json", "state.json"),
    "tensorboard",
  }
  results = json.loads((workdir / "results.json").read_text())
  assert [phase["classes_seen"] for phase in results["phases"]] == [2, 4]
  store = CodeStore(MemoryFolder(workdir / "memory"), workdir / "codec")
  assert np.bincount(store.read().labels).tolist() == [20] * 4


def test_a_missing_or_broken_cluster_is_named(tmp_path):
  for text, part in (
    (None, "needs the environment variable TF_CONFIG"),
    ("{", "is not of the form"),
    (
      '{"cluster": {"worker": ["a:1"]}, '
      '"task": {"type": "worker", "index": 1}}',
      "worker 1",
    ),
  ):
    environment = {k: v for k, v in os.environ.items() if k != "TF_CONFIG"}
    if text is not None:
      environment["TF_CONFIG"] = text
    worker = start(*TINY, f"--workdir={tmp_path / 'w'}", env=environment)
    _, error = worker.communicate(timeout=120)
    assert worker.returncode == 2
    assert error.count("\n") == 1 and part in error
