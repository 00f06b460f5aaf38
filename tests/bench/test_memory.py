import io
import pathlib

import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.bench import memory
from ibdrr_tf.codec.image_codec import load_image_codec
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.data.source import Source


def test_ledgers_are_of_files_that_were_written(codec_folder):
  generator = np.random.default_rng(0)
  images = generator.integers(0, 256, (60, 16, 16, 3)).astype(np.uint8)
  split = in_memory(images, np.repeat(np.arange(2), 30))
  source = Source("noise", ("a", "b"), split, split)
  rows = memory.measure(source, [codec_folder], None)
  drr, ib_drr = (rows[f"{codec_folder}, {m}"] for m in ("drr", "ib_drr"))
  for stage, name in (("vqvae", "vqvae.ibvq"), ("bitswap", "bitswap.ibbs")):
    size = (pathlib.Path(codec_folder) / name).stat().st_size
    # A model that is read and stored again is the same.
    assert drr[f"codec_{stage}"] == size
  exemplars = ib_drr["raw_exemplars"]
  # Of noise, WebP takes as much as the pixels; 20 of each class are kept.
  assert 40 * 16 * 16 * 3 < exemplars < 1.4 * 40 * 16 * 16 * 3
  # The manifest names their file too.
  entry = ib_drr["index"] - drr["index"]
  assert 0 < entry < 150
  assert ib_drr["total"] - drr["total"] == exemplars + entry
  assert drr["raw_exemplars"] == 0
  assert drr["bytes_per_image"] == drr["total"] / 60
  assert rows["raw pixels"]["total"] == images.nbytes
  assert rows["paper, DRR"]["total"] == pytest.approx(23.45e6)
  some = memory.measure(source, [codec_folder], 40)
  assert some[f"{codec_folder}, drr"]["images"] == 40
  assert not [name for name in some if "paper" in name]


def test_bytes_against_quality(codec_folder):
  ramp = np.linspace(0, 200, 32)
  images = np.stack([np.add.outer(ramp, ramp * k) / 4 for k in (0, 1, 2)])
  images = np.repeat(images[..., np.newaxis], 3, axis=-1).astype(np.uint8)
  rows = memory.quality(images, [codec_folder])

  for kind, quality in (("WebP", 50), ("JPEG", 80)):
    size = error = 0
    for image in images:
      file = io.BytesIO()
      options = {"method": 6} if kind == "WebP" else {"optimize": True}
      Image.fromarray(image).save(file, kind, quality=quality, **options)
      size += file.tell() / 3
      decoded = np.asarray(Image.open(file).convert("RGB")).astype(float)
      error += 20 * np.log10(255 / np.sqrt(((decoded - image) ** 2).mean())) / 3
    row = rows[f"{kind} quality {quality}"]
    assert row["bytes"] == row["bytes_with_models"] == pytest.approx(size)
    assert row["psnr"] == pytest.approx(error, rel=1e-4)

  ours = rows[codec_folder]
  models = sum(
    (pathlib.Path(codec_folder) / name).stat().st_size
    for name in ("vqvae.ibvq", "bitswap.ibbs")
  )
  assert ours["bytes_with_models"] - ours["bytes"] == pytest.approx(
    models / 50_000
  )
  codec = load_image_codec(codec_folder)
  back = codec.decode(*codec.encode(images)).numpy().astype(float)
  errors = ((back - images) ** 2).mean(axis=(1, 2, 3))
  want = (20 * np.log10(255 / np.sqrt(errors))).mean()
  assert ours["psnr"] == pytest.approx(want, abs=0.01)
