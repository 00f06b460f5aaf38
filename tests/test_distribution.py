import subprocess
import sys

import pytest
import tensorflow as tf

from ibdrr_tf import distribution
from ibdrr_tf.errors import UserError


def test_one_device_needs_no_strategy():
  assert distribution.make_strategy("none").num_replicas_in_sync == 1
  assert not isinstance(
    distribution.make_strategy("auto"), tf.distribute.MirroredStrategy
  )


def test_too_late_is_said(monkeypatch):
  tf.config.list_logical_devices()  # Starts TensorFlow's devices.
  with pytest.raises(UserError, match="too late"):
    distribution.make_strategy("mirrored", 3)
  with pytest.raises(UserError, match="negative"):
    distribution.make_strategy("mirrored", -1)


@pytest.mark.parametrize(
  "method",
  [
    "upper_bound",
    pytest.param("mnemonics", marks=pytest.mark.slow),
    pytest.param("gfr", marks=pytest.mark.slow),
  ],
)
def test_two_cpu_devices_learn_a_phase(tmp_path, method):
  """Two replicas run the whole command; the last batch has one image."""
  result = subprocess.run(
    [
      *(sys.executable, "-m", "ibdrr_tf.main", "--phases=1"),
      *("--distribute=mirrored", "--cpu_devices=2", f"--method={method}"),
      "--config.data.classes=4",
      "--config.data.shapes_train=30",
      "--config.data.shapes_test=5",
      "--config.classifier.width=2",
      "--config.classifier.epochs=2",
      "--config.classifier.batch_size=59",
      "--config.gfr.generator_epochs=10",
      f"--workdir={tmp_path / 'w'}",
    ],
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
  )
  assert result.returncode == 0, result.stderr
  assert (tmp_path / "w" / "results.json").exists()
