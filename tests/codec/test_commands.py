"""The codec's command as a user meets it, with a codec of random weights."""

import functools
import io
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from ibdrr_tf.codec import __main__ as command
from ibdrr_tf.codec import archive, model_file
from ibdrr_tf.codec import image_codec as image_codec_module
from ibdrr_tf.codec.lossless import chain
from ibdrr_tf.errors import UserError

SIZES = {"a.png": (33, 47), "b/c.png": (16, 16), "b/d.png": (40, 41)}
SIZES |= {"e.webp": (16, 16), "z.PNG": (5, 70)}


@pytest.fixture(scope="module")
def run(codec_folder):
  """Runs the command with the tiny codec, whose graphs are traced once."""
  load = image_codec_module.load_image_codec
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(image_codec_module, "load_image_codec", functools.cache(load))
    yield lambda *arguments, codec=codec_folder: command.main(
      ["codec", *map(str, arguments), f"--codec={codec}"]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory, noise):
  """Image files of all sizes, and a file that is none."""
  root = tmp_path_factory.mktemp("images")
  for number, (name, size) in enumerate(SIZES.items()):
    path = root / name
    path.parent.mkdir(exist_ok=True)
    Image.fromarray(noise(1, *size, seed=number)[0]).save(path, lossless=True)
  (root / "notes.txt").write_text("no image")
  return root


@pytest.fixture(scope="module")
def packed(run, folder):
  path = folder.parent / "photos.ibdrr"
  run("compress", folder, "-o", path)
  return path


@pytest.fixture(scope="module")
def array(run, noise, tmp_path_factory):
  """A .npy file and its archive."""
  root = tmp_path_factory.mktemp("array")
  np.save(root / "in.npy", noise(25, 16, 24))
  run("compress", root / "in.npy", "-o", root / "out.ibdrr")
  return root


def read(path):
  with Image.open(path) as image:
    return np.asarray(image.convert("RGB"))


def test_a_folder_of_mixed_sizes(run, folder, packed, image_codec, tmp_path):
  run("decompress", packed, "-o", tmp_path / "out")
  made = sorted(
    path.relative_to(tmp_path / "out").as_posix()
    for path in (tmp_path / "out").rglob("*.png")
  )
  assert made == ["a.png", "b/c.png", "b/d.png", "e.png", "z.png"]
  for name, size in SIZES.items():
    original = read(folder / name)
    codes = image_codec.encode(original[np.newaxis])
    want = image_codec.decode(*codes)[0, : size[0], : size[1]]
    png = tmp_path / "out" / name.rsplit(".", 1)[0]
    np.testing.assert_array_equal(read(f"{png}.png"), want)


def test_codes_come_back_exactly(run, folder, packed, image_codec, tmp_path):
  run("decompress", packed, "--codes", "-o", tmp_path / "c.npz")
  codes = np.load(tmp_path / "c.npz", allow_pickle=False)
  assert len(codes.files) == 2 * len(SIZES)
  for number, name in enumerate(sorted(SIZES)):
    top, bottom = image_codec.encode(read(folder / name)[np.newaxis])
    np.testing.assert_array_equal(codes[f"top_{number:05d}"], top[0])
    np.testing.assert_array_equal(codes[f"bottom_{number:05d}"], bottom[0])


def test_arrays(run, array, image_codec):
  images = np.load(array / "in.npy")
  run("decompress", array / "out.ibdrr", "-o", array / "back.npy")
  back = np.load(array / "back.npy")
  assert back.dtype == np.uint8
  top, bottom = image_codec.encode(images)
  np.testing.assert_array_equal(back, image_codec.decode(top, bottom))
  run("decompress", array / "out.ibdrr", "--codes", "-o", array / "c.npz")
  codes = np.load(array / "c.npz", allow_pickle=False)
  assert set(codes.files) == {"top", "bottom"}
  np.testing.assert_array_equal(codes["top"], top)
  np.testing.assert_array_equal(codes["bottom"], bottom)
  run("decompress", array / "out.ibdrr", "-o", array / "png")
  np.testing.assert_array_equal(read(array / "png" / "00024.png"), back[24])


def test_info_counts_and_measures(run, array, capsys):
  run("info", array / "out.ibdrr", array / "in.npy")
  rows = dict(
    line.split(maxsplit=1)
    for line in capsys.readouterr()
    .out.replace("bits per ", "bits_per_")
    .splitlines()
  )
  size = (array / "out.ibdrr").stat().st_size
  codes = 25 * (2 * 3 + 4 * 6)
  assert rows["images"].split()[0] == "25" and "16x24" in rows["sizes"]
  assert rows["bytes"].startswith(f"{size},")
  assert float(rows["bits_per_code"]) == pytest.approx(8 * size / codes, 1e-3)
  assert float(rows["bits_per_pixel"]) == pytest.approx(
    8 * size / (25 * 16 * 24), 1e-3
  )
  run("decompress", array / "out.ibdrr", "-o", array / "i.npy")
  psnr = tf.image.psnr(np.load(array / "in.npy"), np.load(array / "i.npy"), 255)
  assert float(rows["PSNR"].split()[0]) == pytest.approx(
    float(np.mean(psnr)), abs=0.006
  )


class _Pipe:
  def __init__(self, data=b""):
    self.buffer = io.BytesIO(data)


def test_pipes(run, array, monkeypatch):
  monkeypatch.setattr(sys, "stdin", _Pipe((array / "in.npy").read_bytes()))
  out = _Pipe()
  monkeypatch.setattr(sys, "stdout", out)
  run("compress", "-", "-o", "-")
  packed = out.buffer.getvalue()
  assert packed == (array / "out.ibdrr").read_bytes()
  monkeypatch.setattr(sys, "stdin", _Pipe(packed))
  out = _Pipe()
  monkeypatch.setattr(sys, "stdout", out)
  run("decompress", "-", "-o", "-")
  assert np.load(io.BytesIO(out.buffer.getvalue())).shape == (25, 16, 24, 3)


def test_nothing_is_overwritten_unasked(run, array, packed, tmp_path):
  taken = tmp_path / "taken.ibdrr"
  taken.write_text("mine")
  with pytest.raises(UserError, match="--force"):
    run("compress", array / "in.npy", "-o", taken)
  assert taken.read_text() == "mine"
  run("compress", array / "in.npy", "-o", taken, "--force")
  assert taken.read_bytes() == (array / "out.ibdrr").read_bytes()
  (tmp_path / "out" / "b").mkdir(parents=True)
  (tmp_path / "out" / "b" / "d.png").write_text("mine")
  with pytest.raises(UserError, match="--force"):
    run("decompress", packed, "-o", tmp_path / "out")
  assert len(list((tmp_path / "out").rglob("*.png"))) == 1


def test_the_wrong_codec_is_named(run, array, other_folder, tmp_path):
  with pytest.raises(UserError, match="another codec"):
    run(
      *("decompress", array / "out.ibdrr", "-o", tmp_path / "x"),
      codec=other_folder,
    )


def test_export_makes_a_saved_model(run, tmp_path, noise, image_codec):
  run("export", "-o", tmp_path / "codec")
  loaded = tf.saved_model.load(str(tmp_path / "codec"))
  images = noise(2, 9, 10)
  for got, want in zip(
    loaded.encode(images), image_codec.encode(images), strict=True
  ):
    np.testing.assert_array_equal(got, want)
  with pytest.raises(UserError, match="--force"):
    run("export", "-o", tmp_path / "codec")


def test_mistakes_are_named(run, array, packed, folder, tmp_path):
  broken = tmp_path / "broken"
  broken.mkdir()
  (broken / "a.jpg").write_bytes(b"\xff\xd8\xff no image")
  np.save(tmp_path / "float.npy", np.zeros((2, 8, 8, 3)))
  np.save(tmp_path / "none.npy", np.zeros((0, 8, 8, 3), np.uint8))
  np.save(tmp_path / "object.npy", np.array([{}], object))
  out = tmp_path / "o.ibdrr"
  for part, arguments in (
    ("nothing to read", ["compress", "-o", out]),
    ("nowhere to write", ["compress", folder]),
    ("'more'", ["compress", folder, "more", "-o", out]),
    ("there is no", ["compress", tmp_path / "nothing", "-o", out]),
    ("a.jpg", ["compress", broken, "-o", out]),
    ("float64", ["compress", tmp_path / "float.npy", "-o", out]),
    ("[0, 8, 8, 3]", ["compress", tmp_path / "none.npy", "-o", out]),
    ("no .npy array", ["compress", tmp_path / "object.npy", "-o", out]),
    ("cannot be read", ["decompress", tmp_path / "nothing", "-o", out]),
    ("does not begin", ["info", tmp_path / "float.npy"]),
    ("-o DIR", ["decompress", packed, "-o", tmp_path / "x.npy"]),
    (".npz", ["decompress", packed, "--codes", "-o", tmp_path / "x"]),
    ("originals", ["info", packed, array / "in.npy"]),
    ("--froce", ["compress", folder, "-o", out, "--froce"]),
  ):
    with pytest.raises(UserError) as error:
      run(*arguments)
    assert part in str(error.value), error.value
    assert "\n" not in str(error.value)
  with pytest.raises(UserError, match="cifar100, cifar100_depth1, shapes"):
    run("info", array / "out.ibdrr", array / "in.npy", codec="imagenet")
  assert not out.exists()


def test_mistakes_are_found_before_tensorflow_is_imported(tmp_path):
  """A second, not ten; and exit code 2 with one sentence."""
  script = "import sys; sys.modules['tensorflow'] = None; import runpy; "
  script += "runpy.run_module('ibdrr_tf.codec', run_name='__main__')"
  (tmp_path / "bad.ibdrr").write_bytes(b"IBDRR\x01 and so on")
  for arguments in (
    ["compress", "nothing", "-o", "x"],
    ["decompress", "bad.ibdrr", "-o", "x"],
    ["info", "bad.ibdrr"],
    ["squeeze"],
  ):
    started = time.monotonic()
    result = subprocess.run(
      [sys.executable, "-c", script, *arguments],
      capture_output=True,
      text=True,
      check=False,
      cwd=tmp_path,
      env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("ibdrr_tf: error: ")
    assert result.stderr.count("\n") == 1
    assert time.monotonic() - started < 60


def test_help_lists_all_commands(capsys):
  command.main(["codec", "--help"])
  text = capsys.readouterr().out
  for name in ("train", "compress", "decompress", "info", "export", "--codec"):
    assert name in text


@pytest.mark.parametrize("name", ["train", "compress", "decompress", "info"])
def test_each_command_has_its_own_help(capsys, name):
  command.main(["codec", name, "--help"])
  text = capsys.readouterr().out
  usages = {"train", "compress", "decompress", "info", "export"}
  shown = {u for u in usages if f"ibdrr_tf.codec {u} " in text}
  assert shown == {name}
  assert ("--[no]codes" in text) == (name == "decompress")
  assert ("--max_pixels" in text) == (name in ("decompress", "info"))
  assert ("--[no]check" in text) == (name == "compress")


def test_compress_ends_with_a_summary(run, array, tmp_path, capsys):
  out = tmp_path / "o.ibdrr"
  run("compress", array / "in.npy", "-o", out)
  text = capsys.readouterr().out
  size = out.stat().st_size
  rate = 8 * size / (25 * 16 * 24)
  assert f"25 images, {size} bytes, {rate:.4f} bits per pixel, " in text
  assert text.endswith(" s\n") and "PSNR" not in text
  run("compress", array / "in.npy", "-o", out, "--force", "--check")
  checked = capsys.readouterr().out
  run("info", out, array / "in.npy")
  (line,) = (
    row for row in capsys.readouterr().out.splitlines() if "PSNR" in row
  )
  assert f"PSNR {line.split(maxsplit=1)[1]}, " in checked
  assert out.read_bytes() == (array / "out.ibdrr").read_bytes()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_progress_is_shown_at_a_terminal(
  run, array, tmp_path, monkeypatch, is_terminal
):
  shown = io.StringIO()
  shown.isatty = lambda: is_terminal
  monkeypatch.setattr(sys, "stderr", shown)
  run("compress", array / "in.npy", "-o", tmp_path / "o.ibdrr")
  run("decompress", tmp_path / "o.ibdrr", "-o", tmp_path / "o.npy")
  for title in ("compress", "decompress"):
    assert (f"\r{title}: 100%" in shown.getvalue()) == is_terminal
  assert ("25/25" in shown.getvalue()) == is_terminal


def test_one_image_becomes_one_file(run, array, folder, tmp_path):
  run("compress", folder / "a.png", "-o", tmp_path / "a.ibdrr")
  run("decompress", tmp_path / "a.ibdrr", "-o", tmp_path / "y.png")
  assert read(tmp_path / "y.png").shape == (33, 47, 3)
  with pytest.raises(UserError, match="already there"):
    run("decompress", tmp_path / "a.ibdrr", "-o", tmp_path / "y.png")
  with pytest.raises(UserError, match=r"25 images, which no \.png file"):
    run("decompress", array / "out.ibdrr", "-o", tmp_path / "z.png")
  (tmp_path / "folder.png").mkdir()
  run("decompress", tmp_path / "a.ibdrr", "-o", tmp_path / "folder.png")
  assert (tmp_path / "folder.png" / "a.png").is_file()


def test_new_folders_are_told(run, folder, tmp_path, capsys):
  run("compress", folder / "a.png", "-o", tmp_path / "new" / "a.ibdrr")
  assert f"{tmp_path / 'new'} is made" in capsys.readouterr().err
  run("decompress", tmp_path / "new" / "a.ibdrr", "-o", tmp_path / "out")
  assert "is made" not in capsys.readouterr().err
  run("decompress", tmp_path / "new" / "a.ibdrr", "-o", tmp_path / "b" / "c")
  assert f"{tmp_path / 'b'} is made" in capsys.readouterr().err


def test_broken_images_are_named_or_skipped(run, folder, tmp_path, capsys):
  for name in ("a.png", "z.PNG"):
    (tmp_path / name).write_bytes((folder / name).read_bytes())
  data = (tmp_path / "z.PNG").read_bytes()
  (tmp_path / "z.PNG").write_bytes(data[: len(data) // 2])
  out = tmp_path / "o.ibdrr"
  with pytest.raises(UserError, match=r"1 of 2 images.*z\.PNG.*--skip_broken"):
    run("compress", tmp_path, "-o", out)
  run("compress", tmp_path, "-o", out, "--skip_broken")
  output = capsys.readouterr()
  assert "z.PNG" in output.err and ": 1 images, " in output.out


def test_a_limit_of_pixels_that_a_flag_raises(
  run, codec_folder, image_codec, tmp_path
):
  """Black images of a large size take few bytes, and are not damaged."""
  count, side = 1 << 18, 16
  string = chain.seal(
    tf.constant([bytes(1 << 18)]),
    tf.constant([0]),
    tf.constant([count, 2, 2, 5], tf.int64),
    64,
    0,
    tf.constant(
      model_file.fingerprint((codec_folder / "bitswap.ibbs").read_bytes())
    ),
  )
  data = archive.pack(
    archive.Archive(
      *(image_codec.fingerprint, (1, 1), ((side, side),) * count, None),
      ((string[0].numpy(),),),
    )
  )
  (tmp_path / "x.ibdrr").write_bytes(data)
  arguments = ["decompress", tmp_path / "x.ibdrr", "-o", tmp_path / "x.npy"]
  with pytest.raises(UserError, match=r"give --max_pixels=67108864\."):
    run(*arguments)
  with pytest.raises(UserError, match=r"a chain|a message"):  # It was forged.
    run(*arguments, "--max_pixels=67108864")
