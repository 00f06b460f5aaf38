"""Everything that this package stores, written by one stack, read by another.

    python tests/stack_files.py write DIR
    python tests/stack_files.py check DIR

`check` compares what it reads with what the writer had in memory. It learns one
step more in a copy of the writer's state.
"""

import ibdrr_tf  # isort: skip - before TensorFlow, which it sets up
import pathlib
import shutil
import sys
import tempfile

import numpy as np
import tensorflow as tf
from tiny_codec import write_codec

from ibdrr_tf import config as defaults
from ibdrr_tf.codec import commands, image_codec

SIZE = 16


def _config(codec):
  config = defaults.learner_config()
  config.method = "drr"
  config.codec = str(codec)
  config.classifier.backbone = "resnet8"
  config.classifier.width = 2
  config.classifier.epochs = 1
  config.classifier.updates = 0
  config.classifier.batch_size = 8
  config.classifier.padding = 1
  config.bitswap.refit = "never"
  return config


def _images(count, seed):
  generator = np.random.default_rng(seed)
  return generator.integers(0, 256, (count, SIZE, SIZE, 3)).astype(np.uint8)


def write(folder):
  """Fills an empty folder."""
  codec_folder = write_codec(folder / "codec", 0)
  codec = ibdrr_tf.load_codec(str(codec_folder))
  images = _images(30, 0)
  top, bottom = codec.encode(images)
  chains = codec.codes.compress(top, bottom)
  (folder / "string").write_bytes(codec.compress(images).numpy())
  image_codec.export(codec, folder / "saved_model")
  np.save(folder / "images.npy", images)
  commands.compress(
    str(folder / "images.npy"),
    str(folder / "images.ibdrr"),
    str(codec_folder),
    force=False,
  )
  memory = ibdrr_tf.ReplayMemory(folder / "memory", str(codec_folder))
  memory.add(images, [0, 1, 2] * 10)
  learner = ibdrr_tf.Learner(folder / "state", config=_config(codec_folder))
  learner.learn((images, ["ant", "bee", "cat"] * 10))
  np.savez(
    folder / "expected.npz",
    top=top,
    bottom=bottom,
    decoded=codec.decode(top, bottom),
    probabilities=learner.predict(images).probabilities,
    **{f"chain_{n}": np.frombuffer(c, "u1") for n, c in enumerate(chains)},
  )


def _check_strings(folder, codec, expected):
  """Codes and bytes are exact."""
  levels = expected["top"], expected["bottom"]
  again = codec.codes.compress(*levels)
  assert len(again) == sum(name.startswith("chain_") for name in expected)
  for number, chain in enumerate(again):
    assert chain == expected[f"chain_{number}"].tobytes()
  string = tf.constant((folder / "string").read_bytes())
  for found, want in zip(codec.decompress_codes(string), levels, strict=True):
    np.testing.assert_array_equal(found, want)
  with tempfile.TemporaryDirectory() as other:
    commands.decompress(
      str(folder / "images.ibdrr"),
      f"{other}/codes.npz",
      str(folder / "codec"),
      force=False,
      codes=True,
    )
    with np.load(f"{other}/codes.npz") as found:
      for name, want in zip(("top", "bottom"), levels, strict=True):
        np.testing.assert_array_equal(found[name], want)


def _check_saved_model(folder, expected):
  """The graph of the writer runs here."""
  saved = tf.saved_model.load(str(folder / "saved_model"))
  string = (folder / "string").read_bytes()
  top, bottom = saved.decompress_codes(tf.constant(string))
  np.testing.assert_array_equal(top, expected["top"])
  np.testing.assert_array_equal(bottom, expected["bottom"])
  _check_pixels(saved.decompress(tf.constant(string)), expected["decoded"])


def _check_keras_file(folder, expected):
  """The classifier of the writer loads here, without this package."""
  network = tf.keras.models.load_model(
    folder / "state" / "classifier" / "classifier.keras"
  )
  logits = network.predict(np.load(folder / "images.npy"), verbose=0)
  np.testing.assert_allclose(
    tf.nn.softmax(logits), expected["probabilities"], atol=1e-4
  )


def _check_pixels(found, want):
  """Decoders compute in floats, which may round otherwise."""
  assert np.abs(np.subtract(found, want, dtype=np.int32)).max() <= 1


def check(folder):
  """Reads everything that `write` of another stack has written."""
  codec = ibdrr_tf.load_codec(str(folder / "codec"))
  images = np.load(folder / "images.npy")
  with np.load(folder / "expected.npz") as file:
    expected = dict(file)
  _check_strings(folder, codec, expected)
  _check_saved_model(folder, expected)
  _check_keras_file(folder, expected)
  memory = ibdrr_tf.ReplayMemory(folder / "memory", str(folder / "codec"))
  remembered, labels = memory.images()
  _check_pixels(remembered, expected["decoded"])
  assert labels.tolist() == [0, 1, 2] * 10
  with tempfile.TemporaryDirectory() as other:
    state = shutil.copytree(folder / "state", pathlib.Path(other) / "state")
    learner = ibdrr_tf.Learner(state, config=_config(folder / "codec"))
    np.testing.assert_allclose(
      learner.predict(images).probabilities,
      expected["probabilities"],
      atol=1e-4,
    )
    before = learner.ledger()
    learner.learn((_images(8, 1), ["dog"] * 8))
    assert learner.classes == ("ant", "bee", "cat", "dog")
    assert before.images == 30 and learner.ledger().images == 38


if __name__ == "__main__":
  {"write": write, "check": check}[sys.argv[1]](pathlib.Path(sys.argv[2]))
  print(sys.argv[1], "with TensorFlow", tf.__version__)
