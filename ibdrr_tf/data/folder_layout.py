"""Where the splits of an image folder are; needs no TensorFlow."""

import os
import pathlib

from ibdrr_tf.errors import UserError

__all__ = ["split_dirs"]


def split_dirs(
  data_dir: str | os.PathLike[str],
) -> tuple[pathlib.Path, pathlib.Path]:
  """Finds the folders of the training and the test split."""
  layout = "train/<class>/ and val/<class>/ (or test/<class>/)"
  if not data_dir:
    raise UserError(
      "The data set 'folder' needs a folder of images: set --data_dir to one "
      f"that holds {layout}."
    )
  root = pathlib.Path(data_dir).expanduser()
  if not root.is_dir():
    raise UserError(
      f"The folder '{root}' does not exist: set --data_dir to one that holds "
      f"{layout}."
    )
  train = root / "train"
  test = root / "val" if (root / "val").is_dir() else root / "test"
  for split, name in ((train, "train/"), (test, "val/ or test/")):
    if not split.is_dir():
      raise UserError(
        f"The folder '{root}' has no {name}: set --data_dir to one that holds "
        f"{layout}."
      )
  return train, test
