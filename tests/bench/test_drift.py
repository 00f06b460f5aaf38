"""Codes of networks that learn drift; those of a frozen codec do not."""

import pytest
from tiny_config import tiny_config

from ibdrr_tf.bench import drift
from ibdrr_tf.data.load import load_data


def test_only_codes_of_a_frozen_codec_stay_what_they_were(codec_folder):
  config = tiny_config("drr", 3)
  config.data.classes, config.data.shapes_train = 4, 8
  config.scenario.base_classes, config.scenario.phases = 2, 1
  for name in drift.RIVALS:
    config[name].widths = (4, 6)
    config[name].coder_epochs = 2
    config[name].coder_updates = 1
  config.aqm.entries = 16
  config.aqm.error = 9.0  # All images are compressed.
  source, scenario = load_data(config)
  measured = drift.measure(config, source, scenario, codec_folder)
  (ours,) = [name for name in measured if name.startswith("ours")]
  assert set(measured) == {*drift.RIVALS, ours}
  for name, rows in measured.items():
    assert [row["images"] for row in rows] == [16, 32]
    assert [len(row["psnr"]) for row in rows] == [1, 2]
    first, again = rows[0]["mse"][0], rows[1]["mse"][0]
    # Images come back in the order of their originals.
    assert 0 < first < 9000
    if name == ours:
      assert again == first
    else:
      assert again != pytest.approx(first, rel=1e-6)
  table = drift.table(measured)
  assert table["aqm"]["phase 1"] == measured["aqm"][1]["psnr"][0]
  assert measured["aqm"][1]["raw"] == 0.0
