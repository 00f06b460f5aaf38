"""Finds the source that a user names."""

from ibdrr_tf.data.folder import load_folder
from ibdrr_tf.data.shapes import load_shapes
from ibdrr_tf.data.source import Source
from ibdrr_tf.data.tfds import load_tfds

__all__ = ["load_source"]


def load_source(
  dataset: str,
  *,
  data_dir: str,
  image_size: int,
  ram_bytes: int,
  shapes_per_class: tuple[int, int],
  seed: int,
) -> Source:
  """Loads a data set by name.

  Args:
    dataset: "shapes" (generated), "folder" (image files), or the name of a
      TensorFlow Datasets set such as "cifar100".
    data_dir: where its files are.
    image_size: side to which images are resized; 0 keeps their own.
    ram_bytes: what may be held in memory.
    shapes_per_class: training and test images a class, for "shapes".
    seed: for what is generated.
  """
  if dataset == "shapes":
    train, test = shapes_per_class
    return load_shapes(
      seed=seed,
      train_per_class=train,
      test_per_class=test,
      image_size=image_size or 32,
    )
  if dataset == "folder":
    return load_folder(data_dir, image_size=image_size, ram_bytes=ram_bytes)
  return load_tfds(
    dataset, data_dir, image_size=image_size, ram_bytes=ram_bytes
  )
