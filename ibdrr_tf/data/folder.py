"""Images in folders, one folder per class.

    data_dir/train/<class>/*.jpg
    data_dir/val/<class>/*.jpg     (or test/; val/ wins if there are both)

`image_files` says which files are read, and how. Small sets are decoded once
and kept in RAM. Larger sets are decoded once to check them, and again whenever
they are read, with the same pixels.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf
import tqdm

from ibdrr_tf import errors
from ibdrr_tf.data import image_files, resize, source
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.folder_layout import split_dirs

__all__ = ["first_size", "load_classes", "load_folder", "split_folders"]


@dataclasses.dataclass(frozen=True)
class _Files:
  """The image files of one split, ordered by class and name."""

  paths: tuple[pathlib.Path, ...]
  labels: np.ndarray  # int32 [n]


def load_folder(
  data_dir: str | os.PathLike[str],
  *,
  image_size: int = 0,
  ram_bytes: int = 4 << 30,
  skip_broken: bool = False,
) -> source.Source:
  """Opens a folder of images.

  Args:
    data_dir: the folder that holds train/ and val/ or test/.
    image_size: if positive, the shorter side of every image is scaled to it and
      the central square is cut out. If 0, images are used as they are and must
      all have one size.
    ram_bytes: images are kept in RAM if both splits together, decoded, take no
      more than this.
    skip_broken: whether files that cannot be decoded are left out, and listed
      on standard error. Otherwise all of them are named in one error.

  Returns:
    A source of uint8 images whose classes are the sorted folder names. Within a
    split, images are ordered by class and file name.
  """
  resize.check_size(image_size)
  with _readable_folders():
    train_dir, test_dir = split_dirs(data_dir)
    class_names = _shared_classes(train_dir, test_dir)
    train, test = (_list_files(d, class_names) for d in (train_dir, test_dir))
  train, test = _open_splits(
    (train, test),
    image_size,
    ram_bytes,
    "--config.data.image_size",
    skip_broken,
  )
  return source.Source("folder", class_names, train, test)


def load_classes(
  folder: str | os.PathLike[str],
  *,
  image_size: int = 0,
  class_names: Sequence[str] | None = None,
  ram_bytes: int = 4 << 30,
  skip_broken: bool = False,
) -> tuple[tuple[str, ...], Examples]:
  """Opens the images of `folder/<class>/*`; one class and one image suffice.

  Args:
    folder: holds one folder per class.
    image_size: as for `load_folder`.
    class_names: the classes in label order. The folder may lack some of them
      but may not hold others. Without it, the classes are the sorted names of
      the folders.
    ram_bytes: images are kept in RAM if, decoded, they take no more than this.
    skip_broken: as for `load_folder`.

  Returns:
    The class names, and examples whose labels are indices into them, ordered by
    label and file name.
  """
  resize.check_size(image_size)
  with _readable_folders():
    names = _check_classes(pathlib.Path(folder).expanduser(), class_names)
    files = _list_files(pathlib.Path(folder).expanduser(), names)
  (examples,) = _open_splits(
    [files], image_size, ram_bytes, "an image size", skip_broken
  )
  return names, examples


def split_folders(
  folder: str | os.PathLike[str],
) -> tuple[pathlib.Path, pathlib.Path | None]:
  """Finds the training and, if there is one, the validation folder.

  Returns:
    (folder/train, folder/val or folder/test or None) if there is a train/, else
    (folder, None). If train/ holds no folders and stands beside other class
    folders, it is itself a class.
  """
  root = pathlib.Path(folder).expanduser()
  if not (root / "train").is_dir():
    return root, None
  others = _class_names(root) - {"train", "val", "test"}
  if others and not _class_names(root / "train"):
    return root, None
  tests = (root / name for name in ("val", "test"))
  return root / "train", next(filter(pathlib.Path.is_dir, tests), None)


def first_size(folder: str | os.PathLike[str]) -> tuple[int, int] | None:
  """Height and width of all images of `folder/<class>/*`, or None if mixed.

  Broken files have none; they are named once the images are loaded.
  """
  root = pathlib.Path(folder).expanduser()
  with _readable_folders():
    paths = _list_files(root, _check_classes(root, None)).paths

  def size_of(path: pathlib.Path) -> tuple[int, int] | None:
    with contextlib.suppress(errors.UserError):
      return image_files.read_size(path)

  sizes = set(image_files.in_parallel(size_of, paths)) - {None}
  return sizes.pop() if len(sizes) == 1 else None


@contextlib.contextmanager
def _readable_folders() -> Iterator[None]:
  """Turns errors of the file system into a sentence."""
  try:
    yield
  except OSError as error:
    raise errors.UserError(
      f"The folder '{error.filename}' cannot be read ({error.strerror}): give "
      "yourself the right to, or choose another."
    ) from error


def _class_names(folder: pathlib.Path) -> set[str]:
  return {d.name for d in image_files.visible(folder) if d.is_dir()}


def _check_classes(
  folder: pathlib.Path, class_names: Sequence[str] | None
) -> tuple[str, ...]:
  """Gives the names that labels refer to; a folder needs at least one class."""
  if not folder.is_dir():
    raise errors.UserError(
      f"The folder '{folder}' does not exist: give one that holds a folder of "
      "images for each class."
    )
  found = _class_names(folder)
  if not found:
    raise errors.UserError(
      f"The folder '{folder}' has no class folders: put the images of each "
      "class into a folder of its own."
    )
  if class_names is None:
    return tuple(sorted(found))
  unknown = found - set(class_names)
  if unknown:
    raise errors.UserError(
      f"The folder '{folder}' has the unknown {_listed(unknown)}: remove "
      f"{'them' if len(unknown) > 1 else 'it'}, or learn from "
      f"{'them' if len(unknown) > 1 else 'it'} first."
    )
  return tuple(class_names)


def _shared_classes(
  train_dir: pathlib.Path, test_dir: pathlib.Path
) -> tuple[str, ...]:
  """Lists the classes, which both splits must have."""
  train, test = _class_names(train_dir), _class_names(test_dir)
  for split, missing in ((train_dir, test - train), (test_dir, train - test)):
    if missing:
      raise errors.UserError(
        f"The folder '{split}' lacks the {_listed(missing)}: both splits of "
        "--data_dir need the same classes."
      )
  if len(train) < 2:
    raise errors.UserError(
      f"The folder '{train_dir}' has {len(train)} class folders: --data_dir "
      "needs at least 2 classes, one folder each."
    )
  return tuple(sorted(train))


def _listed(names: set[str]) -> str:
  """Names at most five classes, e.g. "classes ant, bee"."""
  shown = sorted(names)[:5] + ["..."] * (len(names) > 5)
  return f"class{'es' * (len(names) > 1)} {', '.join(shown)}"


def _list_files(folder: pathlib.Path, class_names: tuple[str, ...]) -> _Files:
  """Lists the images of every class that has a folder."""
  paths, labels = [], []
  for label, name in enumerate(class_names):
    if not (folder / name).is_dir():
      continue
    files = image_files.visible(folder / name)
    if not files:
      raise errors.UserError(
        f"The class folder '{folder / name}' has no images: add some, or "
        "remove the class."
      )
    for file in files:
      if file.is_dir():
        raise errors.UserError(
          f"'{file}' is a folder: move its images up or remove it, because "
          "class folders hold only images."
        )
    paths.extend(files)
    labels.extend([label] * len(files))
  return _Files(tuple(paths), np.array(labels, np.int32))


def _open_splits(
  splits: Sequence[_Files],
  image_size: int,
  ram_bytes: int,
  option: str,
  skip_broken: bool,
) -> list[Examples]:
  """Opens all files; looks for all that are broken once one of them is."""
  try:
    return _open_whole(splits, image_size, ram_bytes, option)
  except errors.UserError as error:
    paths = sum((files.paths for files in splits), ())
    broken = image_files.find_broken(paths)
    if not broken:
      raise
    if not skip_broken:
      if len(broken) == 1:  # The error says what is wrong with it.
        raise image_files.BrokenImages(str(error)) from error
      image_files.refuse_broken(broken, len(paths))
  image_files.say_skipped(broken, "cannot be decoded")
  left = [_without(files, set(broken)) for files in splits]
  return _open_whole(left, image_size, ram_bytes, option)


def _without(files: _Files, broken: set[pathlib.Path]) -> _Files:
  """The other files; every class must keep some."""
  keep = np.array([path not in broken for path in files.paths], bool)
  labels = files.labels[keep]
  lost = set(files.labels.tolist()) - set(labels.tolist())
  if lost:
    path = files.paths[int(np.argmax(files.labels == min(lost)))]
    raise errors.UserError(
      f"No image of the class folder '{path.parent}' can be decoded: add some, "
      "or remove the class."
    )
  paths = tuple(path for path in files.paths if path not in broken)
  return _Files(paths, labels)


def _open_whole(
  splits: Sequence[_Files], image_size: int, ram_bytes: int, option: str
) -> list[Examples]:
  """Checks all files, then keeps their pixels or reads them on demand."""
  paths = sum((files.paths for files in splits), ())
  image_shape = (*_common_size(paths, image_size, option), 3)
  fits = len(paths) * int(np.prod(image_shape)) <= ram_bytes
  load = _load_into_ram if fits else _read_on_demand
  return [load(files, image_shape, image_size) for files in splits]


def _common_size(
  paths: tuple[pathlib.Path, ...], image_size: int, option: str
) -> tuple[int, int]:
  """Checks that all files are images and returns their height and width.

  Args:
    paths: all files.
    image_size: the side that images are brought to, or 0.
    option: what a user can set to bring images to one size.
  """
  expected = None
  sizes = image_files.in_parallel(image_files.read_size, paths)
  for path, (height, width) in zip(paths, sizes, strict=True):
    expected = expected or (height, width)
    if not image_size and (height, width) != expected:
      raise errors.UserError(
        f"'{path}' is {height}x{width} pixels, but '{paths[0]}' is "
        f"{expected[0]}x{expected[1]}: set {option} to bring all images to one "
        "size."
      )
  return (image_size, image_size) if image_size else expected


def _load_into_ram(
  files: _Files, image_shape: tuple[int, int, int], image_size: int
) -> Examples:
  """Decodes all files and keeps them."""
  images = image_files.read_images(files.paths, image_shape, image_size)
  return in_memory(images, files.labels)


@functools.cache  # Once a process: a comparison opens its data many times.
def _check_pixels(paths: tuple[pathlib.Path, ...]) -> None:
  """Decodes all files once, if they are not kept.

  A damaged file must not end a training after days, and the error of a batch
  would come too late.
  """

  def check(path: pathlib.Path) -> None:
    image_files.read_image(path)

  for _ in tqdm.tqdm(
    image_files.in_parallel(check, paths),
    total=len(paths),
    desc="checking images",
    leave=False,
    disable=None,
  ):
    pass


def _read_on_demand(
  files: _Files, image_shape: tuple[int, int, int], image_size: int
) -> Examples:
  """Decodes the files of a batch when it is read."""
  _check_pixels(files.paths)

  def read_batch(indices: np.ndarray) -> np.ndarray:
    paths = [files.paths[index] for index in indices]
    return image_files.read_images(paths, image_shape, image_size)

  def read(indices: tf.Tensor) -> tf.Tensor:
    # Stateless: otherwise tf.data would read one batch at a time wherever ops
    # have to be deterministic.
    images = tf.numpy_function(read_batch, [indices], tf.uint8, stateful=False)
    return tf.ensure_shape(
      images, [*tf.TensorShape(indices.shape), *image_shape]
    )

  return Examples(files.labels, image_shape, read)
