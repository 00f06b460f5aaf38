"""Images in folders, one folder per class.

    data_dir/train/<class>/*.jpg
    data_dir/val/<class>/*.jpg     (or test/; val/ wins if there are both)

JPEG, PNG and WebP files are read; greyscale becomes colour and transparency is
dropped. Small sets are decoded once and kept in RAM; sets that do not fit are
decoded once to check them, and whenever they are read, with the same pixels.
"""

import dataclasses
import functools
import io
import os
import pathlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
import tqdm
from PIL import Image

from ibdrr_tf import errors
from ibdrr_tf.data import resize, source
from ibdrr_tf.data.tuning import untuned

__all__ = ["load_folder"]

_EXTENSIONS = (".jpeg", ".jpg", ".png", ".webp")
_FORMATS = ("JPEG", "PNG", "WEBP")
# Operating systems leave these behind; nobody means them as images.
_LITTER = ("desktop.ini", "thumbs.db")


@dataclasses.dataclass(frozen=True)
class _Files:
  """The image files of one split, ordered by class and name."""

  paths: tuple[str, ...]
  labels: np.ndarray  # int32 [n]


def load_folder(
  data_dir: str | os.PathLike[str],
  *,
  image_size: int = 0,
  ram_bytes: int = 4 << 30,
) -> source.Source:
  """Opens a folder of images.

  Args:
    data_dir: the folder that holds train/ and val/ or test/.
    image_size: if positive, the shorter side of every image is scaled to it and
      the central square is cut out. If 0, images are used as they are and must
      all have one size.
    ram_bytes: images are kept in RAM if both splits together, decoded, take no
      more than this.

  Returns:
    A source of uint8 images whose classes are the sorted folder names. Within a
    split, images are ordered by class and file name.
  """
  resize.check_size(image_size)
  try:
    train_dir, test_dir = _split_dirs(data_dir)
    class_names = _class_names(train_dir, test_dir)
    train, test = (_list_files(d, class_names) for d in (train_dir, test_dir))
  except OSError as error:
    raise errors.UserError(
      f"The folder '{error.filename}' cannot be read ({error.strerror}): give "
      "yourself the right to, or set --data_dir to another."
    ) from error
  height, width = _check_headers(train.paths + test.paths, image_size)
  image_shape = (height, width, 3)
  total = (len(train.paths) + len(test.paths)) * height * width * 3
  load = _load_into_ram if total <= ram_bytes else _read_on_demand
  return source.Source(
    name="folder",
    class_names=class_names,
    train=load(train, image_shape, image_size),
    test=load(test, image_shape, image_size),
  )


def _split_dirs(
  data_dir: str | os.PathLike[str],
) -> tuple[pathlib.Path, pathlib.Path]:
  """Finds the folders of the training and the test split."""
  layout = "train/<class>/ and val/<class>/ (or test/<class>/)"
  if not data_dir:
    raise errors.UserError(
      "The data set 'folder' needs a folder of images: set --data_dir to one "
      f"that holds {layout}."
    )
  root = pathlib.Path(data_dir).expanduser()
  if not root.is_dir():
    raise errors.UserError(
      f"The folder '{root}' does not exist: set --data_dir to one that holds "
      f"{layout}."
    )
  train = root / "train"
  test = root / "val" if (root / "val").is_dir() else root / "test"
  for split, name in ((train, "train/"), (test, "val/ or test/")):
    if not split.is_dir():
      raise errors.UserError(
        f"The folder '{root}' has no {name}: set --data_dir to one that holds "
        f"{layout}."
      )
  return train, test


def _class_names(
  train_dir: pathlib.Path, test_dir: pathlib.Path
) -> tuple[str, ...]:
  """Lists the classes, which both splits must have."""
  train, test = (
    {d.name for d in _visible(split) if d.is_dir()}
    for split in (train_dir, test_dir)
  )
  for split, missing in ((train_dir, test - train), (test_dir, train - test)):
    if missing:
      shown = sorted(missing)[:5] + ["..."] * (len(missing) > 5)
      raise errors.UserError(
        f"The folder '{split}' lacks the class{'es' * (len(missing) > 1)} "
        f"{', '.join(shown)}: both splits of --data_dir need the same classes."
      )
  if len(train) < 2:
    raise errors.UserError(
      f"The folder '{train_dir}' has {len(train)} class folders: --data_dir "
      "needs at least 2 classes, one folder each."
    )
  return tuple(sorted(train))


def _list_files(
  split_dir: pathlib.Path, class_names: tuple[str, ...]
) -> _Files:
  """Lists the images of every class."""
  paths, labels = [], []
  for label, name in enumerate(class_names):
    files = sorted(_visible(split_dir / name))
    if not files:
      raise errors.UserError(
        f"The class folder '{split_dir / name}' has no images: add some, or "
        "remove the class from both splits of --data_dir."
      )
    for file in files:
      if file.suffix.lower() not in _EXTENSIONS or file.is_dir():
        raise errors.UserError(
          f"'{file}' is no file that ends in {', '.join(_EXTENSIONS)}: convert "
          "or remove it, as class folders of --data_dir hold only images."
        )
    paths.extend(str(file) for file in files)
    labels.extend([label] * len(files))
  return _Files(tuple(paths), np.array(labels, np.int32))


def _visible(folder: pathlib.Path) -> list[pathlib.Path]:
  """Lists a folder without hidden files and the litter of systems."""
  return [
    path
    for path in folder.iterdir()
    if not path.name.startswith(".") and path.name.lower() not in _LITTER
  ]


def _check_headers(paths: tuple[str, ...], image_size: int) -> tuple[int, int]:
  """Checks that all files are images and returns their height and width."""
  expected = None
  for path in paths:
    try:
      with Image.open(path, formats=_FORMATS) as image:
        width, height = image.size
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError):
      raise _broken(path) from None
    expected = expected or (height, width)
    if not image_size and (height, width) != expected:
      raise errors.UserError(
        f"'{path}' is {height}x{width} pixels, but '{paths[0]}' is "
        f"{expected[0]}x{expected[1]}: set --config.data.image_size to bring "
        "all images to one size."
      )
  return (image_size, image_size) if image_size else expected


def _broken(path: str) -> errors.UserError:
  return errors.UserError(
    f"'{path}' cannot be decoded as JPEG, PNG or WebP: replace it or remove it "
    "from --data_dir."
  )


def _load_into_ram(
  files: _Files, image_shape: tuple[int, int, int], image_size: int
) -> source.Split:
  """Decodes all files and keeps them."""
  images = np.empty((len(files.paths), *image_shape), np.uint8)
  for i, image in enumerate(_decode_all(files.paths, image_shape, image_size)):
    images[i] = image
  return source.in_memory(images, files.labels)


def _decode_all(
  paths: tuple[str, ...], image_shape: tuple[int, int, int], image_size: int
) -> Iterator[np.ndarray]:
  """Decodes all files, in parallel, and names the first that cannot be."""
  dataset = untuned(tf.data.Dataset.from_tensor_slices(list(paths))).map(
    lambda path: _decode(path, image_shape, image_size),
    num_parallel_calls=tf.data.AUTOTUNE,
    deterministic=True,
  )
  iterator = dataset.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
  for path in paths:
    # One by one, so that a file that fails is known by its turn.
    try:
      yield next(iterator)
    except tf.errors.OpError:
      raise _broken(path) from None


@functools.cache  # Once a process, of which a comparison makes many runs.
def _check_pixels(
  paths: tuple[str, ...], image_shape: tuple[int, int, int], image_size: int
) -> None:
  """Decodes all files once, if they are not kept.

  A training of days must not end with one that is damaged, and a batch would
  not say which it was.
  """
  for _ in tqdm.tqdm(
    _decode_all(paths, image_shape, image_size),
    total=len(paths),
    desc="checking images",
    leave=False,
    disable=None,
  ):
    pass


def _read_on_demand(
  files: _Files, image_shape: tuple[int, int, int], image_size: int
) -> source.Split:
  """Decodes the files of a batch when it is read."""
  _check_pixels(files.paths, image_shape, image_size)
  with tf.device("/CPU:0"):
    paths = tf.constant(list(files.paths))

  @tf.function  # Only in a graph does the map run in parallel.
  def read(indices: tf.Tensor) -> tf.Tensor:
    return tf.map_fn(
      lambda path: _decode(path, image_shape, image_size),
      tf.gather(paths, indices),
      fn_output_signature=tf.TensorSpec(image_shape, tf.uint8),
    )

  return source.Split(files.labels, image_shape, read)


def _decode(
  path: tf.Tensor, image_shape: tuple[int, int, int], image_size: int
) -> tf.Tensor:
  """Reads the file at `path`, string [], as uint8 of the given shape."""
  contents = tf.io.read_file(path)
  # Names may lie (ImageNet has a PNG that ends in .JPEG): the contents decide.
  # A WebP file is a RIFF container, which TensorFlow does not know. The JPEG op
  # decodes PNG as well, and unlike `decode_image` it can be told to be exact.
  image = tf.cond(
    tf.strings.substr(contents, 0, 4) == b"RIFF",
    lambda: tf.numpy_function(_decode_webp, [contents], tf.uint8),
    lambda: tf.io.decode_jpeg(
      contents, channels=3, dct_method="INTEGER_ACCURATE"
    ),
  )
  image = tf.ensure_shape(image, [None, None, 3])
  if image_size:
    image = resize.resize_and_crop(image, image_size)
  return tf.ensure_shape(image, image_shape)


def _decode_webp(contents: bytes) -> np.ndarray:
  with Image.open(io.BytesIO(contents), formats=["WEBP"]) as image:
    return np.asarray(image.convert("RGB"))
