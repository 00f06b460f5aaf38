"""A codec in one line."""

from ibdrr_tf.codec import pretrained
from ibdrr_tf.codec.image_codec import ImageCodec, load_image_codec

__all__ = ["load_codec"]


def load_codec(codec: str = pretrained.DEFAULT) -> ImageCodec:
  """Loads a codec that comes with the package, or one of a folder.

  >>> codec = load_codec("cifar100")
  >>> string = codec.compress(images)  # uint8 [n, h, w, 3]
  >>> codec.decompress(string)

  Args:
    codec: a name, or a folder that `ibdrr codec train` has filled.
  """
  folder = pretrained.folder_of(codec)
  loaded = load_image_codec(folder)
  loaded.folder = str(folder)
  return loaded
