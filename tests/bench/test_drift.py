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
  config.aqm.error = 1e-9  # No image bears it: all are kept without loss.
  source, scenario = load_data(config)
  measured = drift.measure(config, source, scenario, codec_folder)
  (ours,) = [name for name in measured if name.startswith("ours")]
  assert set(measured) == {*drift.RIVALS, ours}
  for rows in measured.values():
    assert [row["images"] for row in rows] == [16, 32]
    assert [len(row["psnr"]) for row in rows] == [1, 2]
  # Images come back in the order of their originals.
  assert [row["mse"] for row in measured["aqm"]] == [[0.0], [0.0, 0.0]]
  assert measured["aqm"][1]["raw"] == 1.0
  first, again = (row["mse"][0] for row in measured["scalable_recollections"])
  assert again != pytest.approx(first, rel=1e-3)
  # Batches of other sizes may round a pixel differently.
  first, again = (row["mse"][0] for row in measured[ours])
  assert again == pytest.approx(first, rel=1e-4) and first > 0
  row = drift.table(measured)["scalable_recollections"]
  last = measured["scalable_recollections"][1]
  assert row["phase 1"] == last["psnr"][0] and row["bytes"] == last["bytes"]
