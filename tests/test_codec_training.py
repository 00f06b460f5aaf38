"""The lossy stage trained as part of a run, and its commands."""

import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from ibdrr_tf import codec_training, training
from ibdrr_tf import config as configs
from ibdrr_tf.bench.__main__ import main as bench
from ibdrr_tf.codec.__main__ import main as codec
from ibdrr_tf.codec.image_codec import load_image_codec
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import Examples
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.codec import encode_examples
from ibdrr_tf.replay.codes import Codes

TINY = [
  "--config.data.classes=4",
  "--phases=1",
  "--config.data.shapes_train=24",
  "--config.data.shapes_test=4",
  "--config.classifier.backbone=resnet8",
  "--config.classifier.width=2",
  "--config.classifier.epochs=1",
  "--config.vqvae.codebook_size=16",
  "--config.vqvae.embedding=8",
  "--config.vqvae.channels=16",
  "--config.vqvae.residual_blocks=1",
  "--config.vqvae.residual_channels=8",
  "--config.vqvae.start_from=",
  "--config.vqvae.bottom_depth=1",
  "--config.vqvae.learning_rate=4e-3",
  "--config.vqvae.epochs=3",
  "--config.vqvae.batch_size=16",
  "--config.bitswap.epochs=2",
  "--config.bitswap.latents=1",
  "--config.bitswap.batch_size=16",
  "--config.bitswap.width=8",
  "--config.bitswap.embedding=4",
]


def tiny_config():
  config = configs.get_config()
  config.data.classes = 4
  config.scenario.phases = 1
  config.data.shapes_train = 24
  config.data.shapes_test = 4
  for name, value in {
    "start_from": "",
    "bottom_depth": 1,
    "learning_rate": 4e-3,
    "codebook_size": 16,
    "embedding": 8,
    "channels": 16,
    "residual_blocks": 1,
    "residual_channels": 8,
    "epochs": 3,
    "batch_size": 16,
  }.items():
    config.vqvae[name] = value
  return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("codec") / "c"
  codec(["codec", "train", f"-o={folder}", *TINY])
  return folder


def test_training_leaves_a_codec_and_pictures(trained):
  names = {path.name for path in trained.iterdir()}
  assert {"vqvae.ibvq", "bitswap.ibbs", "static.ibst"} <= names
  assert "reconstructions.png" in names
  model = codec_training.load_vqvae(trained)
  top, bottom = model.encode(np.zeros((2, 32, 32, 3), np.uint8))
  assert top.shape == (2, 4, 4, 1) and bottom.shape == (2, 8, 8, 1)
  tags = set()
  for file in (trained / "tensorboard").rglob("events*"):
    for event in tf.compat.v1.train.summary_iterator(str(file)):
      tags |= {value.tag for value in event.summary.value}
  assert {
    "epoch_psnr",
    "epoch_bottom_perplexity",
    "usage of top codes",
    "usage of bottom codes",
    "original above reconstruction",
    "epoch_bits_per_code",
    "epoch_held_out_bits_per_code",
  } <= tags
  codec = codec_training.load_code_codec(trained, chain_images=10, group=4)
  codes = encode_examples(
    model,
    Examples(np.zeros(13), (24, 40, 3), lambda i: tf.cast(_noise(i), tf.uint8)),
  )
  back = codec.decompress(codec.compress(codes.top, codes.bottom))
  np.testing.assert_array_equal(codes.top, back[0])
  np.testing.assert_array_equal(codes.bottom, back[1])


def _noise(indices):
  shape = tf.stack([tf.shape(indices)[0], 24, 40, 3])
  return tf.random.stateless_uniform(shape, [1, 2], 0, 256, tf.int32)


def test_bit_swap_is_tuned_on_and_stops_when_flat(trained, tmp_path):
  config = tiny_config()
  for name, value in {
    "epochs": 50,
    "fine_tune_epochs": 40,
    "latents": 1,
    "batch_size": 32,
    "width": 8,
    "embedding": 4,
    "patience": 1,
    "learning_rate": 1e-6,
  }.items():
    config.bitswap[name] = value
  vqvae = codec_training.load_vqvae(trained)
  generator = np.random.default_rng(0)
  codes = Codes(
    generator.integers(0, 16, (64, 2, 2, 1)),
    generator.integers(0, 16, (64, 4, 4, 1)),
    np.zeros(64, np.int32),
  )
  strategy = tf.distribute.get_strategy()
  trainer = codec_training.BitSwapTrainer(config, vqvae, tmp_path, strategy)
  first = trainer.train(codes)
  planes = codes.planes()
  before = float(tf.reduce_mean(first.elbo_bits(planes)[0]))
  # At this rate nothing falls, so it ended long before 50 epochs.
  (state,) = (tmp_path / "checkpoints/step-000/bitswap").glob("*.index")
  assert int(state.stem.split("-")[1]) < 50
  config.bitswap.fine_tune_rate = 1e-2
  tuned = trainer.train(codes, phase=1, start=first)
  after = float(tf.reduce_mean(tuned.elbo_bits(planes)[0]))
  assert after < before


def test_a_used_trainer_tunes_as_a_new_one_does(trained, tmp_path):
  config = tiny_config()
  config.bitswap.update(
    latents=1, width=8, embedding=4, batch_size=16, epochs=2
  )
  vqvae = codec_training.load_vqvae(trained)
  generator = np.random.default_rng(0)

  def codes(count):
    levels = (generator.integers(0, 16, (count, n, n, 1)) for n in (2, 4))
    return Codes(*levels, np.zeros(count, np.int32))

  def trainer(folder):
    return codec_training.BitSwapTrainer(
      config, vqvae, tmp_path / folder, tf.distribute.get_strategy()
    )

  used, more = trainer("used"), codes(60)
  stored = bit_swap_file.to_bytes(used.train(codes(40)))
  tuned = [
    one.train(more, phase=1, start=bit_swap_file.from_bytes(stored))
    for one in (used, trainer("new"))
  ]
  assert bit_swap_file.to_bytes(tuned[0]) == bit_swap_file.to_bytes(tuned[1])
  assert bit_swap_file.to_bytes(tuned[0]) != stored
  assert tuned[0].train_function.experimental_get_tracing_count() == 1


def test_only_base_classes_are_seen(tmp_path, monkeypatch):
  seen = []

  def fit(model, job, callbacks):
    seen.append(job)
    raise KeyboardInterrupt

  monkeypatch.setattr(training, "fit", fit)
  with pytest.raises(KeyboardInterrupt):
    codec(["codec", "train", f"-o={tmp_path / 'c'}", *TINY])
  labels = [y.numpy() for _, y in seen[0].batches(range(1), stream.WHOLE)]
  assert set(np.concatenate(labels)) == {0, 1}


def test_an_interrupted_training_gives_the_same_codec(
  trained, tmp_path, monkeypatch
):
  class Stop(tf.keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
      if epoch == 1:
        raise KeyboardInterrupt

  fit = training.fit
  with monkeypatch.context() as patch:
    patch.setattr(
      training,
      "fit",
      lambda model, job, callbacks=(): fit(model, job, [*callbacks, Stop()]),
    )
    with pytest.raises(KeyboardInterrupt):
      codec(["codec", "train", f"-o={tmp_path / 'c'}", *TINY])
  assert not (tmp_path / "c" / "vqvae.ibvq").exists()
  codec(["codec", "train", f"-o={tmp_path / 'c'}", *TINY])
  for name in ("vqvae.ibvq", "bitswap.ibbs"):
    want = (trained / name).read_bytes()
    assert (tmp_path / "c" / name).read_bytes() == want


def test_depth_is_added_to_a_trained_codec(trained, tmp_path, capsys):
  deeper = tmp_path / "d"
  codec(
    [
      *("codec", "train", f"-o={deeper}", *TINY),
      f"--config.vqvae.start_from={trained}",
      "--config.vqvae.bottom_depth=2",
      "--config.vqvae.feature_weight=0.01",
      "--config.vqvae.feature_epochs=1",
      "--config.vqvae.feature_width=2",
    ]
  )
  model = codec_training.load_vqvae(deeper)
  _, bottom = model.encode(np.zeros((1, 33, 47, 3), np.uint8))
  assert bottom.shape == (1, 10, 12, 2)
  output = capsys.readouterr().out
  assert output.count("PSNR") == 1
  assert "dB PSNR with the stored weights, the mean over" in output


def test_a_codec_is_trained_on_images_without_labels(tmp_path, capsys):
  images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3))
  np.save(tmp_path / "in.npy", images.astype(np.uint8))
  codec(
    ["codec", "train", f"{tmp_path / 'in.npy'}", f"-o={tmp_path / 'c'}", *TINY]
  )
  said = capsys.readouterr().out
  assert said.count(" dB") == 1
  assert "over 2 test images, of classes that training also saw" in said
  loaded = load_image_codec(tmp_path / "c")
  assert loaded.encode(images.astype(np.uint8)[:2])[0].shape == (2, 2, 2, 1)


def test_bench_tables_and_picture(trained, tmp_path, capsys):
  photographs = tmp_path / "photos"
  photographs.mkdir()
  pixels = np.random.default_rng(0).integers(0, 256, (2, 70, 90, 3))
  for i, image in enumerate(pixels.astype(np.uint8)):
    Image.fromarray(image).save(photographs / f"{i}.png")
  bench(
    [
      *("bench", "lossy", f"--codec={trained}", *TINY),
      f"--photographs={photographs}",
      f"--picture={tmp_path / 'p.png'}",
      f"--json={tmp_path / 'b.json'}",
      f"--classify={tmp_path / 'classify'}",
    ]
  )
  measured = json.loads((tmp_path / "b.json").read_text())
  assert len(measured["entropy"]) == 2
  for row in measured["entropy"].values():
    # 16 codes are 4 bits at most; a joint histogram is no better than two.
    assert min(row.values()) > 0 and max(row.values()) <= 4
  ours = measured["quality"][str(trained)]
  assert ours["bytes"] <= 80 * 4 / 8 and 5 < ours["psnr"] < 40
  webp = [measured["quality"][f"WebP quality {q}"] for q in (0, 50)]
  assert webp[0]["bytes"] < webp[1]["bytes"]
  assert webp[0]["psnr"] < webp[1]["psnr"]
  assert ours["trained_classes"] == 0
  assert set(measured["classifier"]) == {"raw images", str(trained)}
  with Image.open(tmp_path / "p.png") as picture:
    assert min(picture.size) > 300
  assert "WebP quality 20" in capsys.readouterr().out


def test_bench_of_the_lossless_stage(trained, tmp_path, capsys):
  bench(
    [
      *("bench", "lossless", f"--codec={trained}", *TINY),
      f"--json={tmp_path / 'b.json'}",
    ]
  )
  measured = json.loads((tmp_path / "b.json").read_text())
  rows = measured[str(trained)]
  assert rows["plain packing"]["bits_per_code"] == 4.0
  # Order 0 cannot beat the entropy of 16 codes; both forms have headers.
  assert 0 < rows["order 0"]["bits_per_code"] < 5
  # Without headers and the bytes that it began with, Bit-Swap's strings are as
  # long as its bound says; the ends of streams add some bytes to so few images.
  row = rows["Bit-Swap"]
  size = 1e6 * row["megabytes"]
  codes = 8 * size / row["bits_per_code"]
  net = 8 * (size - row["header_bytes"] - row["seed_bytes"]) / codes
  bound = rows["Bit-Swap's own ELBO"]["bits_per_code"]
  assert 0.98 < net / bound < 1.05
  coder = measured["coder"]
  assert coder["ours_bytes"] == pytest.approx(
    coder["constriction_bytes"], rel=1e-3
  )
  assert "per position" in capsys.readouterr().out


@pytest.mark.parametrize(
  ("command", "arguments", "part"),
  [
    (codec, ["train"], "-o DIR"),
    (codec, ["shrink"], "'shrink'"),
    (codec, [], "give train, compress"),
    (codec, ["train", "in", "more", "-o=x"], "'more'"),
    (codec, ["train", "/not/there", "-o=x"], "/not/there"),
    (codec, ["train", "-o=x", "--config.vqvae.layout=new"], "subpixel"),
    (bench, ["fast"], "'fast'"),
    (bench, ["lossless", "--codec=cifar10"], "cifar100_depth1"),
    (bench, ["lossy", "--codec=/not/there"], "/not/there"),
    (bench, ["lossy", "--codec=x", "--picture=p.png"], "--photographs"),
  ],
)
def test_mistakes_are_named(command, arguments, part):
  with pytest.raises(UserError, match=part):
    command(["command", *arguments])
