import io
import os

import numpy as np
import pytest
from PIL import Image, ImageOps

from ibdrr_tf.data.images import open_images
from ibdrr_tf.errors import UserError


def test_a_folder_is_read_by_name_and_with_its_folders(tmp_path):
  pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
  (tmp_path / "b").mkdir()
  (tmp_path / ".hidden").mkdir()
  Image.fromarray(pixels).save(tmp_path / "z.png")
  Image.fromarray(pixels[:2]).save(tmp_path / "b" / "a.png")
  Image.fromarray(pixels).save(tmp_path / ".hidden" / "a.png")
  pile = open_images(str(tmp_path))
  assert pile.names == ("b/a.png", "z.png")
  assert pile.sizes == ((2, 6), (4, 6))
  np.testing.assert_array_equal(pile.read(1), pixels)
  np.testing.assert_array_equal(pile.read(0), pixels[:2])


@pytest.mark.parametrize(
  ("mode", "pixel", "want"),
  [
    ("L", 7, (7, 7, 7)),
    ("RGBA", (1, 2, 3, 255), (1, 2, 3)),
    ("I;16", 5 * 256 + 9, (5, 5, 5)),
    ("1", 1, (255, 255, 255)),
  ],
)
def test_all_modes_become_colour(tmp_path, mode, pixel, want):
  Image.new(mode, (3, 2), pixel).save(tmp_path / "a.png")
  image = open_images(str(tmp_path / "a.png")).read(0)
  assert image.shape == (2, 3, 3) and image.dtype == np.uint8
  assert (image == want).all()


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
def test_a_file_with_a_changed_byte_is_named_or_decodes(tmp_path, suffix):
  """What Pillow itself refuses is refused; nothing is half decoded."""
  noise = np.random.default_rng(0).integers(0, 256, (24, 24, 3))
  path = tmp_path / f"a.{suffix}"
  Image.fromarray(noise.astype(np.uint8)).save(path)
  data = path.read_bytes()
  refused = 0
  for place in range(len(data) // 3, len(data) - 60, 40):
    changed = bytearray(data)
    changed[place] ^= 0x55
    path.write_bytes(changed)
    try:
      with Image.open(path) as image:
        want = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, ValueError):
      refused += 1
      with pytest.raises(UserError, match=rf"a\.{suffix}' cannot be decoded"):
        open_images(str(path)).read(0)
    else:
      np.testing.assert_array_equal(open_images(str(path)).read(0), want)
  assert refused or suffix != "png"  # Only PNG has checksums.


@pytest.mark.parametrize("suffix", ["png", "jpg", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_photographs_are_set_upright(tmp_path, orientation, suffix):
  """As Pillow's own function does it."""
  pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
  exif = Image.Exif()
  exif[0x0112] = orientation
  path = tmp_path / f"a.{suffix}"
  Image.fromarray(pixels).save(path, exif=exif)
  (tmp_path / "folder.png").mkdir()
  pile = open_images(str(tmp_path))
  with Image.open(path) as image:
    want = np.asarray(ImageOps.exif_transpose(image))
  np.testing.assert_array_equal(pile.read(0), want)
  assert pile.sizes == (want.shape[:2],)
  assert pile.names == (path.name,)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_exif_that_cannot_be_read_is_passed_over(tmp_path):
  pixels = np.zeros((4, 6, 3), np.uint8)
  broken = b"Exif\0\0MM\0*\xff\xff\xff\xff"
  Image.fromarray(pixels).save(tmp_path / "a.jpg", exif=broken)
  assert open_images(str(tmp_path / "a.jpg")).read(0).shape == (4, 6, 3)


def test_arrays_and_pipes(tmp_path):
  images = np.random.default_rng(0).integers(0, 256, (3, 5, 7, 3))
  images = images.astype(np.uint8)
  np.save(tmp_path / "a.npy", images)
  pile = open_images(str(tmp_path / "a.npy"))
  assert pile.names is None and pile.sizes == ((5, 7),) * 3
  np.testing.assert_array_equal(pile.read(2), images[2])
  data = io.BytesIO((tmp_path / "a.npy").read_bytes())
  np.testing.assert_array_equal(open_images("-", data).read(1), images[1])
  buffer = io.BytesIO()
  Image.fromarray(images[0]).save(buffer, "PNG")
  buffer.seek(0)
  np.testing.assert_array_equal(open_images("-", buffer).read(0), images[0])


def test_a_file_that_is_cut_off_is_named(tmp_path):
  noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3))
  Image.fromarray(noise.astype(np.uint8)).save(tmp_path / "a.png")
  data = (tmp_path / "a.png").read_bytes()
  (tmp_path / "a.png").write_bytes(data[: len(data) // 2])
  pile = open_images(str(tmp_path / "a.png"))
  with pytest.raises(UserError, match=r"a\.png' cannot be decoded"):
    pile.read(0)


@pytest.fixture
def mixed(tmp_path):
  """Four images, two of them broken, and three files of other kinds."""
  pixels = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
  for name in ("a.png", "b.jpg", "c.webp", "d.png"):
    Image.fromarray(pixels).save(tmp_path / name)
  for name in ("x.bmp", "y.gif", "z.tiff"):
    Image.fromarray(pixels).save(tmp_path / name)
  for name in ("b.jpg", "d.png"):
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data[: len(data) // 2])
  return tmp_path


def test_all_broken_files_are_named_at_once(mixed, capsys):
  with pytest.raises(
    UserError, match=r"^2 of 4 images cannot.*b\.jpg'.*d\.png"
  ):
    open_images(str(mixed), skip_broken=False)
  assert capsys.readouterr().err == ""


def test_broken_files_are_skipped_and_listed(mixed, capsys):
  os.mkfifo(mixed / "pipe.jpg")
  (mixed / "link.png").symlink_to("nothing")
  pile = open_images(str(mixed), skip_broken=True)
  assert pile.names == ("a.png", "c.webp")
  others, broken = capsys.readouterr().err.splitlines()
  assert "skipped 3 files" in others and "JPEG, PNG or WebP" in others
  assert all(name in others for name in ("x.bmp'", "y.gif'", "z.tiff'"))
  assert "skipped 4 files" in broken and "cannot be decoded" in broken
  assert all(name in broken for name in ("b.jpg", "d.png", "pipe", "link"))


def test_files_of_other_kinds_are_listed(mixed, capsys):
  open_images(str(mixed))
  (line,) = capsys.readouterr().err.splitlines()
  assert "skipped 3 files" in line and "x.bmp" in line
  for name in ("b.jpg", "d.png"):
    (mixed / name).unlink()
  assert len(open_images(str(mixed), skip_broken=False).sizes) == 2
  assert "x.bmp" in capsys.readouterr().err
  for name in ("a.png", "c.webp"):
    (mixed / name).write_bytes(b"")
  with pytest.raises(UserError, match="no image that can be decoded"):
    open_images(str(mixed), skip_broken=True)
  for name in ("a.png", "c.webp"):
    (mixed / name).unlink()
  with pytest.raises(UserError, match=r"holds no JPEG.*, but '.*x\.bmp'"):
    open_images(str(mixed), skip_broken=False)
