"""Image formats that a memory may keep images in, apart from codes.

`lossless` is lossless WebP, which needs about a fifth less than PNG for images
of 32 pixels; `webp` and `jpeg` have a quality; `pixels` is three bytes a pixel.
"""

import concurrent.futures
import io
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from PIL import Image

from ibdrr_tf.errors import UserError

__all__ = [
  "FORMATS",
  "QUALITIES",
  "decode",
  "decode_picture",
  "encode",
  "finest",
]

Plan = TypeVar("Plan")

# Pillow's format and the options that make files smallest.
FORMATS = {
  "lossless": ("WEBP", {"lossless": True, "quality": 100}),
  "webp": ("WEBP", {"method": 6}),
  "jpeg": ("JPEG", {"optimize": True}),
  "pixels": None,
}
# Qualities that a memory with a byte budget steps down, from good to coarse.
QUALITIES = (95, 90, 80, 70, 60, 50, 40, 30, 20, 15, 10, 7, 5, 3, 1, 0)


def finest(
  ladder: Sequence[int],
  make: Callable[[int], Plan],
  fits: Callable[[Plan], bool],
) -> Plan:
  """What is made at the highest quality that fits, else at the lowest.

  Args:
    ladder: qualities, from good to coarse.
    make: of a quality.
    fits: whether it is small enough; coarser is never larger.
  """
  # The first is as a rule that of the images that are there, which need not be
  # encoded again.
  plan = make(ladder[0])
  if len(ladder) == 1 or fits(plan):
    return plan
  plan = make(ladder[-1])
  low, high = 0, len(ladder) - 1  # The last fits, or is all there is.
  while high - low > 1:
    middle = (low + high) // 2
    finer = make(ladder[middle])
    if fits(finer):
      high, plan = middle, finer
    else:
      low = middle
  return plan


def encode(
  images: np.ndarray, kind: str, quality: int | None = None
) -> list[bytes]:
  """Encodes images, uint8 [n, h, w, 3], each on its own.

  Args:
    images: what to encode.
    kind: a key of `FORMATS`.
    quality: 0 to 100, for the formats that have one.
  """
  if kind == "pixels":
    return [image.tobytes() for image in images]
  name, options = FORMATS[kind]
  if quality is not None:
    options = {**options, "quality": quality}

  def encode_one(image: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, name, **options)
    return buffer.getvalue()

  with concurrent.futures.ThreadPoolExecutor() as pool:
    return list(pool.map(encode_one, images))


def decode_picture(
  data: bytes, name: str, shape: tuple[int, int, int], title: str
) -> np.ndarray:
  """Decodes one file, if its header has the size that is expected.

  Args:
    data: the file.
    name: Pillow's name of its format.
    shape: (height, width, 3) that it must have.
    title: for errors, such as "a remembered image".

  Returns:
    uint8 [height, width, 3].
  """
  try:
    with Image.open(io.BytesIO(data), formats=[name]) as picture:
      if picture.size == (shape[1], shape[0]):
        return np.asarray(picture.convert("RGB"))
      found = [picture.height, picture.width, 3]
  except (
    *(OSError, SyntaxError, ValueError, EOFError, IndexError, struct.error),
    Image.DecompressionBombError,
  ) as error:
    raise UserError(
      f"{title} is damaged: restore the memory from a copy."
    ) from error
  raise UserError(
    f"{title} has {found} pixels, where {list(shape)} are expected: restore "
    f"the memory from a copy."
  )


def decode(
  encoded: Iterable[bytes], kind: str, image_shape: tuple[int, int, int]
) -> np.ndarray:
  """Decodes images of one size.

  Args:
    encoded: what `encode` has given.
    kind: a key of `FORMATS`.
    image_shape: (height, width, 3) of all of them.

  Returns:
    uint8 [n, height, width, 3].

  Raises:
    UserError: if an image is damaged or of another size.
  """

  def decode_one(data: bytes) -> np.ndarray:
    try:
      if kind == "pixels":
        return np.frombuffer(data, np.uint8).reshape(image_shape)
    except ValueError as error:
      raise UserError(
        "a remembered image is damaged: restore the memory from a copy."
      ) from error
    return decode_picture(
      data, FORMATS[kind][0], image_shape, "a remembered image"
    )

  with concurrent.futures.ThreadPoolExecutor() as pool:
    images = list(pool.map(decode_one, encoded))
  return np.array(images, np.uint8).reshape(-1, *image_shape)
