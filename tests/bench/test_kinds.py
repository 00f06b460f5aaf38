import json

import pytest

from ibdrr_tf import config as configs
from ibdrr_tf.bench import growth, kinds, lossless, train
from ibdrr_tf.bench.__main__ import main
from ibdrr_tf.bench.options import Options
from ibdrr_tf.bench.table import print_table


@pytest.mark.parametrize(
  ("quick", "at_hand", "dataset", "want"),
  [
    (True, False, "", "shapes"),
    (True, True, "", "cifar100"),
    (False, False, "", "cifar100"),
    (False, True, "shapes", "shapes"),
  ],
)
def test_data_that_are_at_hand(
  tmp_path, monkeypatch, quick, at_hand, dataset, want
):
  if at_hand:
    (tmp_path / "cifar100").mkdir()
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  monkeypatch.setattr(kinds, "load_data", lambda config: [config.dataset])
  options = Options(quick=quick, dataset=dataset)
  assert kinds._source(configs.get_config(), options) == want


def test_codec_needs_no_data(codec_folder, tmp_path, monkeypatch, capsys):
  monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
  monkeypatch.setattr(kinds, "_QUICK_COUNTS", (5, 30))
  monkeypatch.setattr(kinds, "_SIZES", (16, 24))
  # Its process is tested with itself.
  monkeypatch.setattr(
    growth,
    "measure_apart",
    lambda folder, curves: {
      curve: {name: {"images": len(images)} for name, images in sets.items()}
      for curve, sets in curves.items()
    },
  )
  speed = lossless.coder_speed
  monkeypatch.setattr(lossless, "coder_speed", lambda: speed(1000))
  path = tmp_path / "codec.json"
  main(
    [
      *("bench", "codec", "--quick", f"--codec={codec_folder}"),
      *("--config.data.shapes_train=4", "--config.data.shapes_test=1"),
      f"--json={path}",
    ]
  )
  measured = json.loads(path.read_text())
  assert measured["data"] == "shapes" and measured["images"] == 30
  tables = measured[codec_folder]
  assert tables["forms"]["plain packing"]["bits_per_code"] == 4.0
  assert list(tables["by images"]) == ["5 images", "30 images"]
  assert tables["by size"]["24 pixels"] == {"images": 8}
  printed = capsys.readouterr().out
  assert "30 training images of shapes" in printed
  assert "order 0, constriction" in printed


def test_what_a_row_lacks_is_a_dash(capsys):
  print_table("t", {"a": {"x": 12345.6, "y": 0.00012}, "b": {"x": 0.5}})
  lines = capsys.readouterr().out.splitlines()
  assert [line.split() for line in lines[:3]] == [
    ["t", "x", "y"],
    ["a", "12,346", "0.00012"],
    ["b", "0.500", "–"],
  ]


def test_two_replicas_are_measured_by_the_same_command(monkeypatch):
  rows = {"VQ-VAE": {"batch": 64, "images": 9, "images_per_second": 8.0}}
  asked = []

  def apart(arguments):
    asked.extend(arguments)
    return {"VQ-VAE": {"replicas": 2, "images_per_second": 4.0}}

  monkeypatch.setattr(train, "measure", lambda *_, **__: rows)
  monkeypatch.setattr(train, "measure_apart", apart)
  flags = ["--quick", "--config.data.shapes_train=2", "--seed", "3"]
  main(["bench", "train", *flags])
  assert asked[: 1 + len(flags)] == ["train", *flags]
  assert asked[1 + len(flags) :] == ["--distribute=mirrored", "--cpu_devices=2"]
  asked.clear()
  main(["bench", "train", *flags, "--distribute=none"])
  assert not asked
