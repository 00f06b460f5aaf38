import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from ibdrr_tf import errors
from ibdrr_tf.data import folder, resize


def _photo(seed, height=24, width=24):
  """A smooth colour image, as photographs are; noise would vex JPEG."""
  grid = np.random.default_rng(seed).integers(0, 256, (5, 5, 3), np.uint8)
  return Image.fromarray(grid).resize((width, height), Image.BICUBIC)


def _save(image, path, **kwargs):
  path.parent.mkdir(parents=True, exist_ok=True)
  image.save(path, **kwargs)
  return path


def _make(root, test="val", extension="png", per_class=2):
  """Writes a valid data set of the classes ant and bee."""
  seed = 0
  for split in ("train", test):
    for name in ("bee", "ant"):
      for i in range(per_class):
        _save(_photo(seed), root / split / name / f"{i}.{extension}")
        seed += 1
  return root


def _pixels(split):
  return split.read(tf.range(len(split.labels), dtype=tf.int64)).numpy()


def _truth(paths):
  return np.stack([_on_white(Image.open(path)) for path in paths])


def _on_white(image):
  white = Image.new("RGBA", image.size, "white")
  image = Image.alpha_composite(white, image.convert("RGBA"))
  return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("extension", ["png", "jpg", "JPEG", "webp"])
@pytest.mark.parametrize("ram_bytes", [1 << 30, 0])
def test_pixels_and_labels(tmp_path, extension, ram_bytes):
  _make(tmp_path, extension=extension)
  loaded = folder.load_folder(tmp_path, ram_bytes=ram_bytes)
  assert loaded.name == "folder"
  assert loaded.class_names == ("ant", "bee")
  for split, name in ((loaded.train, "train"), (loaded.test, "val")):
    assert split.labels.dtype == np.int32
    np.testing.assert_array_equal(split.labels, [0, 0, 1, 1])
    assert split.image_shape == (24, 24, 3)
    paths = sorted((tmp_path / name).glob("*/*"))
    np.testing.assert_array_equal(_pixels(split), _truth(paths))


def test_both_routes_agree_inside_a_pipeline(tmp_path):
  _make(tmp_path, per_class=4)
  for i, size in enumerate([(40, 30), (30, 40), (24, 24)]):
    _save(_photo(i, *size), tmp_path / "train" / "ant" / f"x{i}.jpg")
    _save(_photo(i, *size), tmp_path / "train" / "bee" / f"x{i}.webp")
  order = [13, 0, 7, 7, 12, 4, 5, 11, 6]
  batches = []
  for ram_bytes in (1 << 30, 0):
    read = folder.load_folder(
      tmp_path, image_size=16, ram_bytes=ram_bytes
    ).train.read
    dataset = tf.data.Dataset.from_tensor_slices(np.array(order, np.int64))
    dataset = dataset.batch(3, drop_remainder=True)
    dataset = dataset.map(read, num_parallel_calls=2)
    assert dataset.element_spec == tf.TensorSpec((3, 16, 16, 3), tf.uint8)
    batches.append(np.concatenate(list(dataset.as_numpy_iterator())))
  np.testing.assert_array_equal(*batches)


def test_ram_limit_counts_both_splits(tmp_path, monkeypatch):
  _make(tmp_path)
  size = 8 * 24 * 24 * 3
  opened = []
  monkeypatch.setattr(
    folder, "_read_on_demand", lambda *_: opened.append("on demand")
  )
  folder.load_folder(tmp_path, ram_bytes=size)
  assert not opened
  folder.load_folder(tmp_path, ram_bytes=size - 1)
  assert opened == ["on demand"] * 2


def test_every_colour_mode_becomes_rgb(tmp_path):
  _make(tmp_path)
  ant = tmp_path / "train" / "ant"
  photo = _photo(9)
  alpha = Image.fromarray(np.arange(576, dtype=np.uint8).reshape(24, 24))
  transparent = photo.copy()
  transparent.putalpha(alpha)
  paths = [
    _save(photo.convert("L"), ant / "a_grey.png"),
    _save(photo.convert("L"), ant / "b_grey.jpg"),
    _save(photo.quantize(8), ant / "c_palette.png"),
    _save(transparent, ant / "d_alpha.png"),
    _save(photo.convert("CMYK"), ant / "e_cmyk.jpg"),
    _save(photo.convert("1"), ant / "f_bilevel.png"),
    _save(transparent, ant / "g_alpha.webp", lossless=True, exact=True),
    # ImageNet holds a PNG that is called .JPEG.
    _save(photo, ant / "h_png.jpeg", format="PNG"),
  ]
  deep = np.arange(576, dtype=np.uint16).reshape(24, 24) * 113
  _save(Image.fromarray(deep), ant / "z_16bit.png")
  images = _pixels(folder.load_folder(tmp_path).train)
  np.testing.assert_array_equal(images[2:10], _truth(paths))
  # Pillow clips 16 bits, which would make most of this image white.
  np.testing.assert_array_equal(
    images[10], np.repeat(deep[..., None] >> 8, 3, axis=-1)
  )


@pytest.mark.parametrize("size", [(48, 48), (64, 40), (31, 77), (10, 9)])
def test_resizing_agrees_with_pillow(size):
  photo = _photo(1, *size)
  result = resize.resize_and_crop(tf.constant(np.asarray(photo)), 16)
  assert result.dtype == tf.uint8 and result.shape == (16, 16, 3)
  scale = 16 / min(size)
  height, width = (round(side * scale) for side in size)
  top, left = (height - 16) // 2, (width - 16) // 2
  truth = photo.resize((width, height), Image.BILINEAR)
  truth = truth.crop((left, top, left + 16, top + 16))
  difference = result.numpy().astype(int) - np.asarray(truth)
  assert np.abs(difference).max() <= 2


def test_resizing_filters_before_it_samples():
  checks = np.indices((64, 64)).sum(0) % 2 * np.uint8(255)
  image = np.repeat(checks[..., None].astype(np.uint8), 3, axis=-1)
  result = resize.resize_and_crop(tf.constant(image), 16).numpy()
  np.testing.assert_allclose(result, 127.5, atol=2)


def test_right_size_is_left_alone():
  image = tf.constant(np.asarray(_photo(2)))
  np.testing.assert_array_equal(resize.resize_and_crop(image, 24), image)


def test_test_folder_is_used_if_there_is_no_val(tmp_path):
  _make(tmp_path, test="test")
  assert len(folder.load_folder(str(tmp_path)).test.labels) == 4
  _make(tmp_path, test="val", per_class=3)
  assert len(folder.load_folder(str(tmp_path)).test.labels) == 6


def test_litter_is_ignored(tmp_path):
  _make(tmp_path)
  for name in (".DS_Store", "train/.cache/x", "train/ant/.x.png"):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"litter")
  (tmp_path / "val" / "bee" / "Thumbs.db").write_bytes(b"litter")
  (tmp_path / "train" / "labels.txt").write_text("ant bee")
  assert len(folder.load_folder(tmp_path).train.labels) == 4


def _message(root, **kwargs):
  with pytest.raises(errors.UserError) as caught:
    folder.load_folder(root, **kwargs)
  message = str(caught.value)
  assert "\n" not in message and message.endswith(".")
  return message


def test_missing_folders(tmp_path):
  assert "--data_dir" in _message("")
  assert f"'{tmp_path / 'no'}' does not exist" in _message(tmp_path / "no")
  assert "has no train/" in _message(tmp_path)
  (tmp_path / "train").mkdir()
  assert "has no val/ or test/" in _message(tmp_path)
  (tmp_path / "val").mkdir()
  assert "at least 2 classes" in _message(tmp_path)


def test_classes_must_agree(tmp_path):
  _make(tmp_path)
  _save(_photo(0), tmp_path / "train" / "wasp" / "0.png")
  message = _message(tmp_path)
  assert str(tmp_path / "val") in message and "class wasp:" in message
  _save(_photo(0), tmp_path / "val" / "wasp" / "0.png")
  for name in "fedcba":
    (tmp_path / "val" / name).mkdir()
  message = _message(tmp_path)
  assert f"'{tmp_path / 'train'}' lacks the classes a, b, c, d, e, ..." in (
    message
  )


def test_empty_class(tmp_path):
  _make(tmp_path)
  for split in ("train", "val"):
    (tmp_path / split / "cow").mkdir()
  (tmp_path / "train" / "cow" / ".DS_Store").touch()
  assert f"'{tmp_path / 'train' / 'cow'}' has no images" in _message(tmp_path)


@pytest.mark.parametrize("name", ["notes.txt", "0.gif", "no_extension"])
def test_other_files(tmp_path, name):
  path = _make(tmp_path) / "val" / "ant" / name
  path.write_bytes(b"something")
  assert str(path) in _message(tmp_path)


def test_nested_class_folder(tmp_path):
  _save(_photo(0), _make(tmp_path) / "train" / "ant" / "images" / "0.png")
  assert str(tmp_path / "train" / "ant" / "images") in _message(tmp_path)


@pytest.mark.parametrize("ram_bytes", [1 << 30, 0])
@pytest.mark.parametrize("contents", [b"", b"no image", b"\xff\xd8\xff\xe0"])
def test_file_that_is_no_image(tmp_path, contents, ram_bytes):
  path = _make(tmp_path) / "train" / "bee" / "0.jpg"
  path.write_bytes(contents)
  assert f"'{path}' cannot be decoded" in _message(
    tmp_path, ram_bytes=ram_bytes
  )


def test_gif_in_disguise(tmp_path):
  path = _make(tmp_path) / "train" / "bee" / "0.png"
  _photo(0).save(path, format="GIF")
  assert f"'{path}' cannot be decoded" in _message(tmp_path)


@pytest.mark.parametrize("ram_bytes", [1 << 30, 0])
@pytest.mark.parametrize("extension", ["png", "jpg", "webp"])
def test_truncated_file(tmp_path, extension, ram_bytes):
  _make(tmp_path, extension=extension, per_class=5)
  path = tmp_path / "train" / "bee" / f"3.{extension}"
  contents = path.read_bytes()
  path.write_bytes(contents[: len(contents) * 3 // 4])
  message = _message(tmp_path, ram_bytes=ram_bytes)
  assert f"'{path}' cannot be decoded" in message


@pytest.mark.parametrize("ram_bytes", [1 << 30, 0])
def test_sizes_that_differ(tmp_path, ram_bytes):
  path = _make(tmp_path) / "val" / "bee" / "odd.png"
  _save(_photo(0, 24, 25), path)
  message = _message(tmp_path, ram_bytes=ram_bytes)
  assert f"'{path}' is 24x25" in message
  assert "--config.data.image_size" in message
  loaded = folder.load_folder(tmp_path, image_size=8, ram_bytes=ram_bytes)
  assert _pixels(loaded.test).shape == (5, 8, 8, 3)


def test_images_need_not_be_square(tmp_path):
  for split in ("train", "val"):
    for name in ("a", "b"):
      _save(_photo(0, 10, 30), pathlib.Path(tmp_path, split, name, "0.png"))
  loaded = folder.load_folder(tmp_path)
  assert loaded.train.image_shape == (10, 30, 3)
  np.testing.assert_array_equal(_pixels(loaded.train)[0], _photo(0, 10, 30))


def test_negative_size(tmp_path):
  assert "image_size is -1" in _message(_make(tmp_path), image_size=-1)


@pytest.mark.parametrize("ram_bytes", [1 << 30, 0])
def test_photographs_are_upright(tmp_path, ram_bytes):
  """They lay on their sides, and their sizes were those of the sensor."""
  exif = Image.Exif()
  exif[0x0112] = 6
  for split in ("train", "val"):
    for name in ("a", "b"):
      path = tmp_path / split / name / "0.png"
      _save(_photo(0, 10, 30), path, exif=exif)
      upright = _photo(0, 10, 30).transpose(Image.Transpose.ROTATE_270)
      _save(upright, path.with_name("1.png"))
  loaded = folder.load_folder(tmp_path, ram_bytes=ram_bytes)
  assert loaded.train.image_shape == (30, 10, 3)
  images = _pixels(loaded.train)
  np.testing.assert_array_equal(images[0], images[1])


def test_contents_decide_and_not_names(tmp_path):
  path = _make(tmp_path) / "train" / "ant" / "no_extension"
  _photo(5).save(path, format="PNG")
  images = _pixels(folder.load_folder(tmp_path).train)
  np.testing.assert_array_equal(images[2], _photo(5))


@pytest.mark.parametrize("kind", ["pipe", "dangling", "loop"])
def test_special_files_are_named(tmp_path, kind):
  path = _make(tmp_path) / "train" / "ant" / "x.png"
  if kind == "pipe":
    os.mkfifo(path)
  else:
    path.symlink_to("nothing.png" if kind == "dangling" else path)
  message = _message(tmp_path)
  part = "not a regular file" if kind == "pipe" else "links to"
  assert f"'{path}'" in message and part in message


def test_an_empty_batch_on_demand(tmp_path):
  split = folder.load_folder(_make(tmp_path), ram_bytes=0).train
  assert split.read(tf.zeros([0], tf.int64)).shape == (0, 24, 24, 3)


@pytest.mark.parametrize("ram_bytes", [1 << 30, 0])
def test_classes_of_one_folder(tmp_path, ram_bytes):
  root = _make(tmp_path) / "train"
  names, examples = folder.load_classes(root, ram_bytes=ram_bytes)
  assert names == ("ant", "bee")
  np.testing.assert_array_equal(examples.labels, [0, 0, 1, 1])
  truth = _truth(sorted(root.glob("*/*")))
  np.testing.assert_array_equal(_pixels(examples), truth)
  order = ("cow", "bee", "ant")
  names, examples = folder.load_classes(
    root, class_names=order, ram_bytes=ram_bytes
  )
  assert names == order
  np.testing.assert_array_equal(examples.labels, [1, 1, 2, 2])
  np.testing.assert_array_equal(_pixels(examples), truth[[2, 3, 0, 1]])


def test_one_class_of_one_image(tmp_path):
  _save(_photo(0), tmp_path / "ant" / "0.png")
  names, examples = folder.load_classes(tmp_path, image_size=8)
  assert names == ("ant",) and _pixels(examples).shape == (1, 8, 8, 3)


def test_mistakes_in_one_folder(tmp_path):
  def message(root, **kwargs):
    with pytest.raises(errors.UserError) as caught:
      folder.load_classes(root, **kwargs)
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and "--" not in text
    return text

  assert "does not exist" in message(tmp_path / "no")
  assert "no class folders" in message(tmp_path)
  (tmp_path / "ant").mkdir()
  assert "has no images" in message(tmp_path)
  _save(_photo(0), tmp_path / "ant" / "0.png")
  assert "unknown class ant" in message(tmp_path, class_names=["bee"])
  _save(_photo(0, 24, 25), tmp_path / "ant" / "1.png")
  assert "is 24x25 pixels" in message(tmp_path)
  (tmp_path / "ant" / "1.png").unlink()
  (tmp_path / "ant" / "notes.txt").write_text("no image")
  assert "notes.txt' cannot be decoded" in message(tmp_path)


def test_the_size_that_all_images_share(tmp_path):
  exif = Image.Exif()
  exif[0x0112] = 6
  _save(_photo(0, 10, 30), tmp_path / "a" / "0.jpg", exif=exif)
  _save(_photo(0, 30, 10), tmp_path / "b" / "0.jpg")
  assert folder.first_size(tmp_path) == (30, 10)
  _save(_photo(0, 10, 30), tmp_path / "b" / "1.jpg")
  assert folder.first_size(tmp_path) is None


def test_splits_of_a_folder(tmp_path):
  assert folder.split_folders(tmp_path) == (tmp_path, None)
  for name in ("train", "test", "val"):
    (tmp_path / name).mkdir()
    want = None if name == "train" else tmp_path / name
    assert folder.split_folders(tmp_path) == (tmp_path / "train", want)


@pytest.mark.parametrize("ram_bytes", [1 << 30, 0])
def test_broken_files_are_all_named_or_skipped(tmp_path, ram_bytes, capsys):
  root = _make(tmp_path)
  for split, name in (("train", "ant"), ("val", "bee")):
    (root / split / name / "a_broken.png").write_bytes(b"no image")
  with pytest.raises(errors.UserError, match=r"^2 of \d+ images cannot be"):
    folder.load_folder(root, ram_bytes=ram_bytes)
  source = folder.load_folder(root, ram_bytes=ram_bytes, skip_broken=True)
  assert capsys.readouterr().err.count("a_broken.png") == 2
  for split in ("train", "val"):
    for name in ("ant", "bee"):
      (root / split / name / "a_broken.png").unlink(missing_ok=True)
  whole = folder.load_folder(root)
  for got, want in ((source.train, whole.train), (source.test, whole.test)):
    np.testing.assert_array_equal(got.labels, want.labels)
    every = tf.range(len(want.labels), dtype=tf.int64)
    np.testing.assert_array_equal(got.read(every), want.read(every))


def test_a_class_without_any_image_left_is_named(tmp_path):
  root = _make(tmp_path)
  for path in (root / "train" / "bee").iterdir():
    path.write_bytes(b"")
  with pytest.raises(errors.UserError, match=r"No image of the class.*bee'"):
    folder.load_folder(root, skip_broken=True)
