"""Image-classification sets of TensorFlow Datasets (TFDS), such as cifar100.

A set that is prepared on disk is only read. A set that is not is downloaded and
prepared first; without a network, this is refused within half a minute instead
of after the many minutes for which TFDS itself would retry.
"""

import contextlib
import difflib
import os
import threading
import types
import urllib.parse
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from absl import logging

from ibdrr_tf import errors
from ibdrr_tf.data import resize, source
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.tuning import untuned

__all__ = ["load_tfds"]

_BATCH = 256
# Seconds that one host, and all hosts together, have for an answer.
_HOST_TIMEOUT = 5
_PROBE_TIMEOUT = 20


def load_tfds(
  name: str,
  data_dir: str | None,
  *,
  image_size: int = 0,
  ram_bytes: int = 4 << 30,
) -> source.Source:
  """Loads a set of TensorFlow Datasets into RAM, and downloads it if need be.

  Args:
    name: as TFDS spells it: "cifar100", "imagenet_resized/32x32" or, to choose
      a version, "cifar100:3.0.2".
    data_dir: where TFDS keeps its sets. If empty, it is $TFDS_DATA_DIR or
      ~/tensorflow_datasets.
    image_size: if positive, the shorter side of every image is scaled to it and
      the central square is cut out. If 0, images are used as they are and must
      all have one size.
    ram_bytes: the most that the decoded images of both splits may take.

  Returns:
    A source of uint8 images in the order in which they are stored. Its test
    split is the set's "test" or, if that is missing or has no labels, its
    "validation".
  """
  resize.check_size(image_size)
  # Slow, and of no use to those who bring their own images.
  import tensorflow_datasets as tfds

  root = data_dir or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
  root = os.path.expanduser(root)
  with _quiet(tfds):
    builder = _find_builder(tfds, name, root)
    _check_features(tfds, builder, name)
    if not builder.is_prepared():
      _download(tfds, builder, name, root)
      builder = _find_builder(tfds, name, root)
    try:
      return _read(tfds, builder, name, image_size, ram_bytes)
    except tf.errors.OpError as error:
      raise errors.UserError(
        f"The data set '{name}' in '{root}' cannot be read "
        f"({_first_line(error)}): delete it there and run again to prepare it "
        "anew."
      ) from error


@contextlib.contextmanager
def _quiet(tfds: types.ModuleType) -> Iterator[None]:
  """Silences TFDS, which tells more about its folders than a user needs."""
  verbosity = logging.get_verbosity()
  logging.set_verbosity(logging.ERROR)
  tfds.disable_progress_bar()
  try:
    yield
  finally:
    logging.set_verbosity(verbosity)
    tfds.enable_progress_bar()


def _find_builder(tfds: types.ModuleType, name: str, root: str) -> Any:
  """Finds a set by its name, in the TFDS catalogue or among prepared files."""
  stem, _, rest = name.partition(":")
  # "cifar100:3.0.2" asks for a version, but "huggingface:x" for another
  # catalogue, which would be looked up on the network.
  if not rest or rest[0].isdigit():
    try:
      return tfds.builder(name, data_dir=root)
    except tfds.core.registered.DatasetNotFoundError:
      pass
    except Exception as error:
      # Whatever a builder raises here is about the name: an unknown version or
      # configuration, or characters that no name has.
      raise errors.UserError(
        f"--dataset '{name}' is no valid TensorFlow Datasets name "
        f"({_first_line(error)})."
      ) from error
  known = ["folder", "shapes"]
  known += tfds.list_builders(with_community_datasets=False)
  close = difflib.get_close_matches(stem.split("/")[0].lower(), known)
  hint = f" (did you mean {', '.join(close)}?)" if close else ""
  raise errors.UserError(
    f"--dataset '{name}' is unknown{hint}: give 'shapes', 'folder' or the name "
    "of an image-classification set of TensorFlow Datasets."
  )


def _check_features(tfds: types.ModuleType, builder: Any, name: str) -> None:
  """Checks that the set maps uint8 images to class labels."""
  keys, features = builder.info.supervised_keys, builder.info.features
  if keys and len(keys) == 2 and all(isinstance(k, str) for k in keys):
    image, label = features[keys[0]], features[keys[1]]
    if (
      isinstance(image, tfds.features.Image)
      and isinstance(label, tfds.features.ClassLabel)
      and image.shape[-1] in (1, 3, 4)
      and image.np_dtype == np.uint8
    ):
      return
  raise errors.UserError(
    f"--dataset '{name}' is no image classification, as its examples are no "
    "pairs of one 8-bit image and one class label: choose a set such as "
    "cifar100."
  )


def _download(
  tfds: types.ModuleType, builder: Any, name: str, root: str
) -> None:
  """Downloads and prepares a set, or says at once why that is impossible."""
  # Sets that are fetched by hand may lie there already, and need no network.
  by_hand = builder.MANUAL_DOWNLOAD_INSTRUCTIONS
  reason = None if by_hand else _unreachable(builder.url_infos or ())
  if reason is None:
    tfds.enable_progress_bar()
    try:
      builder.download_and_prepare()
      return
    except Exception as error:
      # Another worker may have been faster, and have left no room for ours.
      if _find_builder(tfds, name, root).is_prepared():
        return
      # From a full disk to a licence that must be accepted by hand: all that
      # the user can do is to read it.
      reason = _first_line(error)
    finally:
      tfds.disable_progress_bar()
  raise errors.UserError(
    f"The data set '{name}' is not prepared in '{root}' and cannot be "
    f"downloaded ({reason}): prepare it on a machine with network by `tfds "
    f"build {name} --data_dir=DIR` and copy DIR here, or set --data_dir to a "
    f"folder that holds {builder.name}/."
  )


def _unreachable(urls: Any) -> str | None:
  """Returns why the hosts of `urls` cannot be reached; None if they can."""
  hosts = {urllib.parse.urlsplit(url).netloc: url for url in urls}
  answers = []

  def probe():
    for host, url in hosts.items():
      answers.append(_probe_host(host, url))

  # A thread, because nothing limits the time of a name look-up.
  thread = threading.Thread(target=probe, daemon=True)
  thread.start()
  thread.join(_PROBE_TIMEOUT)
  failed = [answer for answer in answers if answer]
  if failed:
    return failed[0]
  # Hosts may be many: if those that had time to answer did, it is worth a try.
  return None if answers or not hosts else f"no answer from {', '.join(hosts)}"


def _probe_host(host: str, url: str) -> str | None:
  # TFDS downloads by the same library, so proxies and certificates agree.
  import requests

  try:
    requests.get(url, stream=True, timeout=_HOST_TIMEOUT).close()
  except requests.exceptions.Timeout:
    return f"{host} does not answer"
  except requests.exceptions.ConnectionError:
    return f"{host} cannot be reached"
  except requests.exceptions.RequestException:
    return None  # Not about the network; TFDS will tell better.
  return None


def _read(
  tfds: types.ModuleType,
  builder: Any,
  name: str,
  image_size: int,
  ram_bytes: int,
) -> source.Source:
  """Decodes a prepared set."""
  image_key, label_key = builder.info.supervised_keys
  shape = builder.info.features[image_key].shape
  if not image_size and None in shape:
    raise errors.UserError(
      f"The images of '{name}' differ in size: set --config.data.image_size to "
      "the number of pixels that all shall have."
    )
  height, width = (image_size, image_size) if image_size else shape[:2]
  splits = ("train", _test_split(builder, name))
  count = sum(builder.info.splits[split].num_examples for split in splits)
  if count * height * width * 3 > ram_bytes:
    raise errors.UserError(
      f"The {count} images of '{name}' take "
      f"{count * height * width * 3 >> 20:,} MiB of RAM, more than the "
      f"{ram_bytes >> 20:,} MiB allowed: set a smaller "
      "--config.data.image_size, or store them as files and use --dataset "
      "folder, which need not hold them in RAM."
    )
  train, test = (
    _read_split(tfds, builder, split, (height, width, 3)) for split in splits
  )
  return source.Source(
    name=name,
    class_names=tuple(builder.info.features[label_key].names),
    train=train,
    test=test,
  )


def _test_split(builder: Any, name: str) -> str:
  """Chooses the split to test on."""
  splits = builder.info.splits
  for split in ("test", "validation"):
    if "train" in splits and split in splits:
      # The test labels of some contests are secret, which TFDS writes as -1.
      dataset = builder.as_dataset(split=split, as_supervised=True)
      if all(label >= 0 for _, label in dataset.take(1).as_numpy_iterator()):
        return split
  raise errors.UserError(
    f"--dataset '{name}' has the splits {', '.join(sorted(splits))}, but "
    "labelled splits 'train' and 'test' or 'validation' are needed: choose "
    "another set."
  )


def _read_split(
  tfds: types.ModuleType,
  builder: Any,
  split: str,
  image_shape: tuple[int, int, int],
) -> Examples:
  """Decodes one split, in the order in which it is stored."""

  def to_colour(image, label):
    if image.shape[-1] == 1:
      image = tf.image.grayscale_to_rgb(image)
    image = image[..., :3]  # Transparency is dropped.
    if image.shape != image_shape:
      image = resize.resize_and_crop(image, image_shape[0])
    return image, label

  dataset = builder.as_dataset(
    split=split,
    as_supervised=True,
    # Files one after another; the default takes turns between them.
    read_config=tfds.ReadConfig(interleave_cycle_length=1),
  )
  dataset = untuned(dataset).map(to_colour, num_parallel_calls=tf.data.AUTOTUNE)
  count = builder.info.splits[split].num_examples
  images = np.empty((count, *image_shape), np.uint8)
  labels = np.empty([count], np.int32)
  start = 0
  batches = dataset.batch(_BATCH).prefetch(tf.data.AUTOTUNE)
  for batch, batch_labels in batches.as_numpy_iterator():
    stop = start + len(batch)
    images[start:stop], labels[start:stop] = batch, batch_labels
    start = stop
  return in_memory(images, labels)


def _first_line(error: Exception) -> str:
  """The first line of what an exception says, as TFDS adds whole manuals."""
  lines = str(error).strip().splitlines()
  return lines[0].strip().rstrip(".:") if lines else type(error).__name__
