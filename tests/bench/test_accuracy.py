"""Forms within a budget, and a measurement that goes on where it stopped."""

import json

import numpy as np
import pytest

from ibdrr_tf.bench import accuracy, forms
from ibdrr_tf.bench.accuracy import Kept, Plan
from ibdrr_tf.codec.lossy.vqvae import mean_psnr
from ibdrr_tf.data.load import load_data
from ibdrr_tf.errors import UserError


def smooth(count, classes, seed=0):
  """Sorted images, uint8 [n, 16, 16, 3], with some texture."""
  generator = np.random.default_rng(seed)
  ramp = np.linspace(0, 100, 16)[:, np.newaxis, np.newaxis]
  noise = generator.normal(0, 20, (count, 16, 16, 3))
  images = generator.uniform(0, 155, (count, 1, 1, 3)) + ramp + noise
  labels = np.sort(np.arange(count) % classes).astype(np.int32)
  return np.clip(images, 0, 255).astype(np.uint8), labels


@pytest.mark.parametrize("kind", ["webp", "avif"])
def test_sheets_have_the_highest_quality_that_fits(kind):
  images, labels = smooth(60, 3)
  form = forms.sheet_form(kind)
  room = 60 * 60
  kept = form(images, labels, room, 1.0)
  quality = int(kept.setting.split()[1])
  assert kept.payload <= room
  assert kept.images.shape == images.shape
  assert mean_psnr(images, kept.images) > 20
  finer = [
    forms.sheets.encode(images[labels == label], kind, quality + 1)
    for label in range(3)
  ]
  assert sum(len(s.data) for part in finer for s in part) > room
  assert form(images, labels, 100, 1.0) is None


def test_files_that_do_not_fit_are_fewer():
  images, labels = smooth(60, 3)
  form = forms.file_form("webp")
  size = sum(map(len, forms.image_formats.encode(images, "webp", 0)))
  kept = form(images, labels, size // 2, 1.0)
  assert kept.payload <= size // 2
  # Nearly half of them, and of each class as many.
  (count,) = set(np.bincount(labels[kept.places]))
  assert 8 <= count <= 10
  assert mean_psnr(images[kept.places], kept.images) > 15


def test_models_count_by_their_share(codec_folder):
  images, labels = smooth(40, 2)
  form = forms.code_form(str(codec_folder))
  one, ten = (form(images, labels, 1e6, share) for share in (1.0, 10.0))
  assert one.models == ten.models > 1000
  assert one.payload == ten.payload
  least = one.payload + one.models / 10
  assert form(images, labels, least - 1, 10.0) is None
  assert form(images, labels, least, 10.0) is not None
  assert form(images, labels, least, 1.0) is None


@pytest.fixture
def setting(monkeypatch):
  """A protocol of seconds on generated images, whose trainings are counted."""
  config = accuracy.protocol()
  config.dataset = "shapes"
  config.data.classes = 2
  config.scenario.base_classes = config.scenario.phases = 1
  config.data.shapes_train, config.data.shapes_test = 12, 4
  config.precision = "float32"
  config.classifier.backbone = "resnet8"
  config.classifier.width = 2
  config.classifier.epochs = 1
  trained = []
  real = accuracy.train_classifier

  def count(examples, **options):
    trained.append(len(examples))
    if len(trained) == 3:
      raise KeyboardInterrupt
    return real(examples, **options)

  monkeypatch.setattr(accuracy, "train_classifier", count)
  return config, *load_data(config), trained


def halved(images, labels, room, share):
  """Keeps every other image; fits into ten bytes an image or more."""
  if room < 10 * len(labels):
    return None
  places = np.arange(0, len(labels), 2)
  return Kept("half", images[places], 5 * len(labels), 1000, places)


def test_a_measurement_goes_on_where_it_stopped(setting, tmp_path):
  config, source, scenario, trained = setting
  path = tmp_path / "accuracy.json"
  plan = Plan(images=(24, 48), budgets=(5, 20), seeds=2)

  def run():
    return accuracy.measure(
      config, source, scenario, {"halved": halved}, plan, path
    )

  with pytest.raises(KeyboardInterrupt):
    run()
  assert len(json.loads(path.read_text())["trainings"]) == 2
  record = run()
  # Raw and halved, two seeds each; the third was interrupted.
  assert trained == [24, 12, 24, 24, 12]
  rows = {(r["form"], r["images"], r["budget"]): r for r in record["rows"]}
  assert len(rows) == 5
  assert rows["halved", 24, 5]["setting"] is None
  assert rows["halved", 24, 20]["bytes_per_image"] == 5 + 1000 / 24
  assert rows["halved", 48, 20]["bytes_per_image"] == 5 + 1000 / 48
  assert len(rows["raw", None, None]["accuracy"]) == 2
  assert rows["halved", 24, 20]["psnr"] == 100
  assert (
    rows["halved", 24, 20]["accuracy"] == rows["halved", 48, 20]["accuracy"]
  )
  assert run() == record and len(trained) == 5
  table = accuracy.table(record)
  assert table["raw"]["seeds"] == 2
  assert "halved, 24 images, 5 bytes" not in table

  config.classifier.epochs = 2
  with pytest.raises(UserError, match="another protocol"):
    run()
