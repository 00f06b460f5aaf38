import http.server
import io
import shutil
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import requests
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from ibdrr_tf import errors
from ibdrr_tf.data import resize
from ibdrr_tf.data import tfds as module


class _Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
  """A set of noise images with labels that cycle."""

  VERSION = tfds.core.Version("1.0.0")
  SHAPE = (10, 12, 3)
  SPLITS = ("train", "test")
  SECRET = ()
  COUNT = 7

  def _info(self):
    features = {
      "image": tfds.features.Image(shape=self.SHAPE),
      "label": tfds.features.ClassLabel(names=["ant", "bee", "cow"]),
      "id": tfds.features.Text(),
    }
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict(features),
      supervised_keys=("image", "label"),
    )

  def _split_generators(self, dl_manager):
    return {split: self._generate_examples(split) for split in self.SPLITS}

  def _size(self, i):
    return self.SHAPE[:2]

  def _generate_examples(self, split):
    rng = np.random.default_rng(len(split))
    for i in range(self.COUNT):
      shape = (*self._size(i), self.SHAPE[-1])
      image = rng.integers(0, 256, shape, np.uint8)
      label = -1 if split in self.SECRET else i % 3
      yield i, {"image": image, "label": label, "id": f"{split}-{i}"}


class TinyPhotos(_Builder):
  pass


class TinyMany(_Builder):
  # TFDS would by default take 16 examples from each file in turn.
  COUNT = 60


class TinyDigits(_Builder):
  SHAPE = (8, 8, 1)
  SPLITS = ("train", "validation", "test")
  SECRET = ("test",)


class TinyStickers(_Builder):
  SHAPE = (8, 8, 4)
  SPLITS = ("train", "validation")


class TinyMixed(_Builder):
  SHAPE = (None, None, 3)

  def _size(self, i):
    return (9 + i, 20 - i)


class TinyTrainOnly(_Builder):
  SPLITS = ("train",)


class TinyWords(_Builder):
  def _info(self):
    features = tfds.features.FeaturesDict({"id": tfds.features.Text()})
    return self.dataset_info_from_configs(features=features)


class TinyFaraway(_Builder):
  # Nothing listens on port 1.
  url_infos = {"http://127.0.0.1:1/tiny.zip": None}  # noqa: RUF012


class TinyRace(_Builder):
  def _split_generators(self, dl_manager):
    # Another worker prepares the same set meanwhile, and is done first.
    shutil.copytree(TinyRace.others, TinyRace.target)
    raise OSError("Directory not empty")


class TinyFailing(_Builder):
  def _split_generators(self, dl_manager):
    raise ValueError("the moon is full.\nTry tomorrow.")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
  monkeypatch.setenv("no_proxy", "*")


def _pixels(split):
  return split.read(tf.range(len(split.labels), dtype=tf.int64)).numpy()


def _stored(root, pattern):
  """Reads images and labels from the files, in order, without TFDS."""
  images, labels = [], []
  for path in sorted(root.glob(pattern)):
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      example = tf.train.Example.FromString(record).features.feature
      png = example["image"].bytes_list.value[0]
      images.append(np.asarray(Image.open(io.BytesIO(png))))
      labels.append(example["label"].int64_list.value[0])
  return images, labels


def test_prepares_and_reads(tmp_path):
  loaded = module.load_tfds("tiny_photos", str(tmp_path))
  assert loaded.name == "tiny_photos"
  assert loaded.class_names == ("ant", "bee", "cow")
  for split, name in ((loaded.train, "train"), (loaded.test, "test")):
    images, labels = _stored(tmp_path, f"tiny_photos/*/*-{name}*")
    assert len(images) == 7
    assert split.labels.dtype == np.int32
    assert split.image_shape == (10, 12, 3)
    np.testing.assert_array_equal(_pixels(split), images)
    np.testing.assert_array_equal(split.labels, labels)


def test_another_worker_may_prepare_it_first(tmp_path):
  module.load_tfds("tiny_photos", str(tmp_path / "a"))
  (TinyRace.others,) = (tmp_path / "a/tiny_photos").iterdir()
  info = TinyRace.others / "dataset_info.json"
  info.write_text(info.read_text().replace("tiny_photos", "tiny_race"))
  for path in TinyRace.others.glob("tiny_photos-*"):
    path.rename(path.with_name(path.name.replace("tiny_photos", "tiny_race")))
  TinyRace.target = tmp_path / "b/tiny_race/1.0.0"
  loaded = module.load_tfds("tiny_race", str(tmp_path / "b"))
  assert len(loaded.train.labels) == 7


def test_keeps_the_order_of_many_files(tmp_path):
  builder = TinyMany(data_dir=tmp_path)
  config = tfds.download.DownloadConfig(num_shards=3)
  builder.download_and_prepare(download_config=config)
  assert len(list(tmp_path.glob("*/*/*-train*"))) == 3
  loaded = module.load_tfds("tiny_many:1.0.0", str(tmp_path))
  images, labels = _stored(tmp_path, "tiny_many/*/*-train*")
  np.testing.assert_array_equal(_pixels(loaded.train), images)
  np.testing.assert_array_equal(loaded.train.labels, labels)


def test_default_folder_is_that_of_tfds(tmp_path, monkeypatch):
  monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
  module.load_tfds("tiny_photos", None)
  assert (tmp_path / "tiny_photos" / "1.0.0").is_dir()


def test_grey_becomes_colour_and_secret_labels_are_avoided(tmp_path):
  loaded = module.load_tfds("tiny_digits", str(tmp_path))
  images, labels = _stored(tmp_path, "tiny_digits/*/*-validation*")
  np.testing.assert_array_equal(
    _pixels(loaded.test), np.repeat(np.stack(images)[..., None], 3, axis=-1)
  )
  np.testing.assert_array_equal(loaded.test.labels, labels)


def test_transparency_is_dropped(tmp_path):
  loaded = module.load_tfds("tiny_stickers", str(tmp_path))
  images, _ = _stored(tmp_path, "tiny_stickers/*/*-train*")
  np.testing.assert_array_equal(
    _pixels(loaded.train), np.stack(images)[..., :3]
  )


def test_mixed_sizes_need_a_size(tmp_path):
  message = _message("tiny_mixed", tmp_path)
  assert "differ in size" in message and "--config.data.image_size" in message
  loaded = module.load_tfds("tiny_mixed", str(tmp_path), image_size=6)
  images, _ = _stored(tmp_path, "tiny_mixed/*/*-train*")
  for ours, stored in zip(_pixels(loaded.train), images, strict=True):
    # Checked against Pillow in the tests of the folder source.
    truth = resize.resize_and_crop(tf.constant(stored), 6)
    np.testing.assert_array_equal(ours, truth)


def _message(name, root, **kwargs):
  with pytest.raises(errors.UserError) as caught:
    module.load_tfds(name, str(root), **kwargs)
  message = str(caught.value)
  assert "\n" not in message and message.endswith(".")
  return message


def test_too_large_for_ram(tmp_path):
  size = 14 * 10 * 12 * 3
  module.load_tfds("tiny_photos", str(tmp_path), ram_bytes=size)
  message = _message("tiny_photos", tmp_path, ram_bytes=size - 1)
  for part in ("14 images", "--dataset folder", "--config.data.image_size"):
    assert part in message


def test_unknown_names(tmp_path):
  message = _message("cifar10O", tmp_path)
  assert "'cifar10O' is unknown" in message and "cifar100" in message
  assert "'shapes'" in message and "'folder'" in message
  assert "did you mean shapes" in _message("shape", tmp_path)
  assert "did you mean" not in _message("qqqqqqqqqq", tmp_path)


@pytest.mark.parametrize("name", ["", "a b", "cifar100:9.9.9", "glue/nothing"])
def test_impossible_names(tmp_path, name):
  assert f"'{name}' is no valid" in _message(name, tmp_path)


def test_other_catalogues_are_not_asked(tmp_path, monkeypatch):
  monkeypatch.setattr(tfds, "builder", None)
  assert "is unknown" in _message("huggingface:mnist", tmp_path)


@pytest.mark.parametrize("name", ["tiny_words", "imdb_reviews", "coco", "glue"])
def test_no_image_classification(tmp_path, name):
  assert f"'{name}' is no image classification" in _message(name, tmp_path)
  assert not list(tmp_path.iterdir())


def test_sets_that_cannot_be_used(tmp_path):
  assert "has the splits train," in _message("tiny_train_only", tmp_path)
  assert "(the moon is full)" in _message("tiny_failing", tmp_path)


def test_without_network(tmp_path):
  start = time.monotonic()
  message = _message("tiny_faraway", tmp_path)
  assert time.monotonic() - start < 10
  assert f"'tiny_faraway' is not prepared in '{tmp_path}'" in message
  assert "127.0.0.1:1 cannot be reached" in message and "--data_dir" in message
  assert "tfds build tiny_faraway" in message
  assert not list(tmp_path.iterdir())


def test_damaged_files(tmp_path):
  module.load_tfds("tiny_photos", str(tmp_path))
  (path,) = tmp_path.glob("tiny_photos/*/*-train*")
  path.write_bytes(path.read_bytes()[:-100])
  assert "cannot be read" in _message("tiny_photos", tmp_path)


class _Silence(http.server.BaseHTTPRequestHandler):
  def do_GET(self):
    self.send_error(404)

  def log_message(self, *args):
    pass


def test_probe_of_a_host_that_answers():
  server = http.server.HTTPServer(("127.0.0.1", 0), _Silence)
  threading.Thread(target=server.serve_forever, daemon=True).start()
  try:
    # Even a refusal shows that there is a network.
    url = f"http://127.0.0.1:{server.server_port}/x"
    assert module._unreachable([url]) is None
    bad = "http://127.0.0.1:1/x"
    assert "127.0.0.1:1 " in module._unreachable([url, bad])
  finally:
    server.shutdown()
    server.server_close()


def test_probe_of_a_host_that_is_silent(monkeypatch):
  monkeypatch.setattr(module, "_HOST_TIMEOUT", 0.2)
  with socket.create_server(("127.0.0.1", 0)) as server:
    url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
    assert "does not answer" in module._unreachable([url])


def test_probe_of_a_name_that_is_looked_up_forever(monkeypatch):
  give_up = threading.Event()

  def look_up(*_, **__):
    give_up.wait(20)
    raise requests.exceptions.ConnectionError

  monkeypatch.setattr(module, "_PROBE_TIMEOUT", 0.2)
  monkeypatch.setattr(requests, "get", look_up)
  start = time.monotonic()
  assert "no answer from slow" in module._unreachable(["http://slow/x"])
  assert time.monotonic() - start < 10
  give_up.set()


def test_is_quiet_about_prepared_sets(tmp_path, capfd):
  module.load_tfds("tiny_photos", str(tmp_path))
  assert "Downloading and preparing" in capfd.readouterr().out
  module.load_tfds("tiny_photos", str(tmp_path))
  out, err = capfd.readouterr()
  assert out == "" and "tiny_photos" not in err


def test_import_is_lazy():
  code = "import sys, ibdrr_tf.data.tfds as _; "
  code += "sys.exit('tensorflow_datasets' in sys.modules)"
  assert subprocess.run([sys.executable, "-c", code]).returncode == 0
