import subprocess
import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf import config as configs
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


@pytest.mark.parametrize("count", [0, 1, 3, 10])
def test_shares_of_a_team_are_all_of_the_work(count):
  shares = []
  for number in range(4):
    team = distribution.Team(None)
    team.count, team.number = 4, number
    shares += range(count)[team.share(count)]
  assert shares == list(range(count))


def test_a_process_alone_does_all_of_it(capsys):
  team = distribution.ALONE
  values = np.arange(6).reshape(3, 2)
  assert team.is_chief and team.share(7) == slice(0, 7)
  assert team.gather(values) is values
  assert team.gather_strings([b"a", b""]) == [b"a", b""]
  assert team.ask_chief(lambda: "yes") == "yes"
  done = []
  team.on_chief(lambda: done.append(1))
  team.say("a line")
  assert done == [1] and capsys.readouterr().out == "a line\n"


def test_learning_rates_grow_with_replicas_only_if_asked_for():
  config = configs.get_config()
  four = types.SimpleNamespace(num_replicas_in_sync=4)
  assert distribution.learning_rate_factor(config, four) == 1.0
  config.scale_learning_rate = True
  assert distribution.learning_rate_factor(config, four) == 4.0


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
      "--config.classifier.backbone=resnet8",
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
