"""Images as they arrive: a folder of classes, arrays, or a data set."""

import dataclasses
import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.data.examples import (
  Examples,
  in_memory,
  ordered_batches,
  take,
)
from ibdrr_tf.data.folder import first_size, load_classes, split_folders
from ibdrr_tf.data.resize import resize_and_crop
from ibdrr_tf.errors import UserError

__all__ = ["Arrived", "fingerprint", "hold_out", "read_arrived"]

# Images of other sizes than the state's are brought to this one if nothing
# else is said, and if their own sizes differ.
_DEFAULT_SIZE = 64
_LARGEST_DEFAULT = 96
_BATCH = 250
_HELD_OUT = 0.1
_FEWEST = 5


@dataclasses.dataclass(frozen=True)
class Arrived:
  """Labelled images of named classes.

  Attributes:
    names: of the classes.
    examples: labels are numbers in `names`.
    validation: images of the same classes that only test; None if none came.
  """

  names: tuple[str, ...]
  examples: Examples
  validation: Examples | None = None

  def __post_init__(self):
    for name in self.names:
      try:
        name.encode()
      except UnicodeEncodeError as error:
        # Of a folder that was made elsewhere; a state could not be told.
        raise UserError(
          f"the class name {name!r} is not UTF-8: rename the class."
        ) from error


def read_arrived(
  data: Any,
  image_shape: tuple[int, int, int] | None,
  *,
  image_size: int = 0,
  ram_bytes: int = 4 << 30,
  skip_broken: bool = False,
) -> Arrived:
  """Reads new images, brought to one size.

  Args:
    data: a folder with a folder for each class, or with `train/` and `val/`
      that hold them; a pair (images uint8 [n, h, w, 3], class names of length
      n); or a `tf.data.Dataset` of such pairs, batched or not.
    image_shape: of the images that are known already; None in the first step.
    image_size: height and width for the first step; 0 keeps the size of images
      that all have the same, up to 96 pixels, and else takes 64.
    ram_bytes: a larger folder is read as it is needed.
    skip_broken: whether files of a folder that cannot be decoded are left out,
      and listed on standard error.
  """
  if isinstance(data, (str, os.PathLike)):
    options = {"ram_bytes": ram_bytes, "skip_broken": skip_broken}
    return _read_folder(pathlib.Path(data), image_shape, image_size, options)
  images, labels = _to_arrays(data)
  size = image_shape[0] if image_shape else image_size
  if not size and (
    images[0].shape[0] != images[0].shape[1]
    or len({image.shape for image in images}) > 1
    or max(images[0].shape) > _LARGEST_DEFAULT
  ):
    size = _DEFAULT_SIZE
  if size:
    images = [
      image
      if image.shape[:2] == (size, size)
      else resize_and_crop(image, size).numpy()
      for image in images
    ]
  names = tuple(sorted(set(labels)))
  number = {name: i for i, name in enumerate(names)}
  return Arrived(
    names, in_memory(np.stack(images), [number[name] for name in labels])
  )


def _read_folder(
  folder: pathlib.Path,
  image_shape: tuple[int, int, int] | None,
  image_size: int,
  options: dict[str, Any],
) -> Arrived:
  """Reads a folder; `options` are those of `load_classes`."""
  train, test = split_folders(folder)
  size = image_shape[0] if image_shape else image_size
  if not size:
    own = first_size(train)
    is_small = own and own[0] == own[1] <= _LARGEST_DEFAULT
    size = own[0] if is_small else _DEFAULT_SIZE
  options = {**options, "image_size": size}
  names, examples = load_classes(train, **options)
  validation = None
  if test is not None:
    others, validation = load_classes(test, **options)
    unknown = sorted(set(others) - set(names))
    if unknown:
      raise UserError(
        f"the folder {test} has the class {unknown[0]!r}, of which {train} has "
        f"no images: add some, or remove it."
      )
    places = np.array([names.index(name) for name in others])
    validation = dataclasses.replace(
      validation, labels=places[validation.labels].astype(np.int32)
    )
  return Arrived(names, examples, validation)


def _to_arrays(data: Any) -> tuple[Sequence[np.ndarray], list[str]]:
  """Images, uint8 [h, w, 3] each, and the name of each one's class."""
  if isinstance(data, tf.data.Dataset):
    spec = data.element_spec
    if not isinstance(spec, tuple) or len(spec) != 2:
      raise UserError(
        f"the data set gives {spec}: give pairs (image, class name)."
      )
    if spec[0].shape.rank == 4:
      data = data.unbatch()
    pairs = list(data.as_numpy_iterator())
    images, labels = ([pair[i] for pair in pairs] for i in (0, 1))
  else:
    try:
      images, labels = data
      images, labels = list(images), list(labels)
    except (TypeError, ValueError) as error:
      raise UserError(
        f"{type(data).__name__} is not what can be learned from: give a "
        f"folder, a pair (images, class names) or a tf.data.Dataset of them."
      ) from error
  if len(images) != len(labels) or not len(labels):
    raise UserError(
      f"there are {len(images)} images and {len(labels)} class names: give one "
      f"name for each image."
    )
  for image in images:
    dtype, shape = np.asarray(image).dtype, np.shape(image)
    if dtype != np.uint8 or len(shape) != 3 or shape[-1] != 3 or 0 in shape:
      raise UserError(
        f"an image is {dtype} {list(shape)}: give uint8 [height, width, 3] "
        f"with values 0 to 255, e.g. (255 * image).astype('uint8')."
      )
  return [np.asarray(image) for image in images], [_name(x) for x in labels]


def _name(label: Any) -> str:
  return label.decode() if isinstance(label, bytes) else str(label)


def hold_out(
  examples: Examples, seed: int, share: float = _HELD_OUT
) -> tuple[Examples, Examples | None]:
  """Sets a share of the images of each class aside, to test with.

  A class of fewer than five images gives none.

  Returns:
    Examples to learn from, and those set aside; None if there are none.
  """
  aside = [np.zeros(0, np.int64)]
  for label in np.unique(examples.labels):
    members = np.flatnonzero(examples.labels == label)
    if len(members) >= _FEWEST:
      generator = np.random.default_rng((seed, int(label), len(members)))
      count = max(1, round(share * len(members)))
      aside.append(generator.permutation(members)[:count])
  chosen = np.sort(np.concatenate(aside))
  if not len(chosen):
    return examples, None
  rest = np.setdiff1d(np.arange(len(examples)), chosen)
  return take(examples, rest), take(examples, chosen)


def fingerprint(names: Sequence[str], *parts: Examples | None) -> str:
  """Tells the data of one step from another's.

  It is made of class names, labels and all pixels.
  """
  digest = hashlib.sha256(repr(tuple(names)).encode())
  for examples in parts:
    if examples is None or not len(examples):
      digest.update(b"none")
      continue
    digest.update(repr(examples.image_shape).encode())
    digest.update(examples.labels.astype("<i4").tobytes())
    for pixels in ordered_batches(examples, _BATCH).as_numpy_iterator():
      digest.update(pixels.tobytes())
  return digest.hexdigest()[:16]
