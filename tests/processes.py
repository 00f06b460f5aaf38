"""Runs as processes of their own, for tests that kill them."""

import json
import signal
import subprocess
import sys
import time

# Seconds of every stage: VQ-VAE, Bit-Swap, classifier, two phases of `ib_drr`.
TINY_REPLAY = [
  "--phases=1",
  "--config.data.classes=4",
  "--config.data.shapes_train=20",
  "--config.data.shapes_test=5",
  "--config.classifier.backbone=resnet8",
  "--config.classifier.width=2",
  "--config.classifier.epochs=2",
  "--config.classifier.batch_size=16",
  "--config.memory.exemplars_per_class=3",
  "--codec=",
  "--config.vqvae.start_from=",
  "--config.vqvae.bottom_depth=1",
  "--config.vqvae.epochs=2",
  "--config.vqvae.batch_size=16",
  "--config.vqvae.channels=8",
  "--config.vqvae.residual_channels=4",
  "--config.vqvae.residual_blocks=1",
  "--config.vqvae.codebook_size=16",
  "--config.vqvae.embedding=4",
  "--config.bitswap.epochs=2",
  "--config.bitswap.fine_tune_epochs=1",
  "--config.bitswap.latents=1",
  "--config.bitswap.width=8",
  "--config.bitswap.blocks=1",
]


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
