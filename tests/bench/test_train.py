import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import event_pb2

from ibdrr_tf import config as configs
from ibdrr_tf import training
from ibdrr_tf.bench import train
from ibdrr_tf.data.load import load_data
from ibdrr_tf.errors import UserError


def write_events(folder, times, tag="epoch_loss"):
  folder.mkdir(parents=True)
  path = folder / "events.out.tfevents.1.host"
  with tf.io.TFRecordWriter(str(path)) as writer:
    for epoch, time in enumerate(times):
      for name in (tag, f"{tag}_too"):
        event = event_pb2.Event(wall_time=time, step=epoch)
        event.summary.value.add(tag=name)
        writer.write(event.SerializeToString())


def test_speed_is_that_of_epochs_after_the_first(tmp_path):
  write_events(tmp_path / "train", [0.0, 2.0, 7.0, 11.0])
  write_events(tmp_path / "pictures", [0.5, 6.5, 9.0], tag="usage of codes")
  # Epochs took 2, 5 and 4 seconds after the one that built graphs.
  assert train.images_per_second(tmp_path, 200) == 50.0


def test_one_epoch_is_too_few(tmp_path):
  write_events(tmp_path / "train", [0.0])
  with pytest.raises(UserError, match="only 1 epochs"):
    train.images_per_second(tmp_path, 200)


def test_every_stage_is_trained(codec_folder, monkeypatch):
  trained, fit = [], training.fit

  def watched(model, job, callbacks=()):
    before = [v.numpy() for v in model.trainable_variables]
    seconds = fit(model, job, callbacks)
    after = [v.numpy() for v in model.trainable_variables]
    moved = np.mean(
      [np.any(a != b) for a, b in zip(before, after, strict=True)]
    )
    trained.append((job.title, job.epochs, moved > 0.5))
    return seconds

  monkeypatch.setattr(training, "fit", watched)
  config = configs.get_config()
  config.codec = codec_folder
  config.data.classes, config.scenario.phases = 4, 1
  config.data.shapes_train, config.data.shapes_test = 8, 1
  config.data.image_size = 16
  config.classifier.backbone = "resnet8"
  config.classifier.width = 2
  for name, value in {
    "codebook_size": 16,
    "embedding": 4,
    "channels": 8,
    "residual_channels": 4,
    "bottom_depth": 1,
    "start_from": "",
  }.items():
    config.vqvae[name] = value
  config.bitswap.width, config.bitswap.embedding = 8, 4
  source, scenario = load_data(config)
  strategy = tf.distribute.get_strategy()
  rows = train.measure(config, source, scenario, strategy, epochs=2)
  titles = ["VQ-VAE", "Bit-Swap, phase 0", *["step 0, 2 classes"] * 3]
  assert trained == [(title, 2, True) for title in titles]
  classifiers = [f"classifier, {n}" for n in ("upper_bound", "drr", "ib_drr")]
  assert list(rows) == ["VQ-VAE", "Bit-Swap", *classifiers]
  for row in rows.values():
    assert row["images"] == 16 and row["replicas"] == 1
    assert 0 < row["images_per_second"] < 1e6
  assert rows["classifier, drr"]["batch"] == config.classifier.batch_size


def test_replicas_are_held_against_one():
  one = {"VQ-VAE": _row(1, 100.0), "Bit-Swap": _row(1, 50.0)}
  two = {"VQ-VAE": _row(2, 150.0), "Bit-Swap": _row(2, 40.0)}
  rows = train.compare(one, two)
  assert [row["ratio"] for row in rows.values()] == [1.5, 0.8]
  assert {row["replicas"] for row in rows.values()} == {2}


def test_a_failure_in_the_other_process_is_one_sentence():
  with pytest.raises(UserError, match=r"--distribute=three is unknown.*alone"):
    train.measure_apart(["train", "--distribute=three"])


def _row(replicas, speed):
  return {
    "replicas": replicas,
    "batch": 64,
    "images": 10,
    "images_per_second": speed,
  }
