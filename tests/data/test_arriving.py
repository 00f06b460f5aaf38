import numpy as np
import pytest
from PIL import Image

from ibdrr_tf.data.arriving import read_arrived
from ibdrr_tf.errors import UserError


def test_broken_files_are_named_or_left_out(tmp_path, capsys):
  for name in ("ant", "bee"):
    (tmp_path / name).mkdir()
    for number in range(2):
      pixels = np.full((8, 8, 3), number, np.uint8)
      Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    (tmp_path / name / "x.png").write_bytes(b"no image")
  with pytest.raises(UserError, match=r"2 of 6 images cannot be decoded"):
    read_arrived(tmp_path, None)
  arrived = read_arrived(tmp_path, None, skip_broken=True)
  assert arrived.examples.labels.tolist() == [0, 0, 1, 1]
  assert arrived.examples.image_shape == (8, 8, 3)
  assert capsys.readouterr().err.count("x.png") == 2


def test_names_that_nobody_could_print_are_refused():
  images = np.zeros((2, 8, 8, 3), np.uint8)
  with pytest.raises(UserError, match=r"'caf\\udce9' is not UTF-8: rename"):
    read_arrived((images, ["ant", "caf\udce9"]), None)
