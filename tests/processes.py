"""Runs as processes of their own, for tests that kill them."""

import json
import signal
import subprocess
import sys
import time


def start(*arguments, **options):
  # A shell starts background jobs with Ctrl-C ignored, and children inherit it.
  options.setdefault(
    "preexec_fn", lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
  )
  return subprocess.Popen(
    [sys.executable, "-m", "ibdrr_tf.main", *map(str, arguments)],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
    **options,
  )


def accuracies(workdir):
  results = json.loads((workdir / "results.json").read_text())
  return [
    (p["phase"], p["accuracy"], p["accuracy_by_phase_group"], p["memory"])
    for p in results["phases"]
  ]


def wait_for(condition, process, seconds=120):
  end = time.monotonic() + seconds
  while not condition():
    assert process.poll() is None, process.stderr.read()
    assert time.monotonic() < end
    time.sleep(0.005)
