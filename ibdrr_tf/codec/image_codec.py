"""Both stages in one: images to a byte string and back.

    images ─► VQ-VAE ─► codes ─► Bit-Swap ─► chains ─► one string

Everything is a `tf.function` with a signature, and the functions hold all that
they need, so `export` makes a SavedModel of them that works without this
package. Only uint8 images are taken, here and in the SavedModel: TensorFlow
would cast an array of floats in [0, 1] to black images. The string is

    magic "IBDI" | version u8 | fingerprint of the VQ-VAE, 8 bytes | images u32
    | height u32 | width u32 | chains u32 | bytes of each chain u32
    | checksum of all this, 8 bytes | chains (see `chain`)

with big-endian numbers. Codes come back exactly, on every machine; the images
made from them may differ in the last bit of a pixel where floats do.
"""

from __future__ import annotations

import os
import pathlib
import shutil

import numpy as np
import tensorflow as tf

from ibdrr_tf import files
from ibdrr_tf.codec import constant_weights, model_file, pretrained, tiles
from ibdrr_tf.codec.lossless import message
from ibdrr_tf.codec.lossless.bit_swap import BitSwap
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.codec.lossless.message import from_number, to_number
from ibdrr_tf.codec.lossless.static import StaticCoder
from ibdrr_tf.codec.lossy import vqvae
from ibdrr_tf.errors import UserError

__all__ = ["ImageCodec", "export", "load_image_codec"]

_MAGIC = b"IBDI"
_VERSION = 1
_NUMBERS = 4
_PREFIX = len(_MAGIC) + 1 + 8 + 4 * _NUMBERS
_CHECKSUM = 8
# The VQ-VAE takes as many images at once as have so many pixels together.
_BATCH_PIXELS = 1 << 18
# Larger images are cut into tiles.
_TILE_PIXELS = 1 << 20
# An export refuses these by a sentence; TensorFlow refuses all further ones.
_OTHER_TYPES = (
  *(tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.bool),
  *(tf.int8, tf.int16, tf.int32, tf.int64, tf.uint16, tf.uint32, tf.uint64),
)


class ImageCodec(tf.Module):
  """The codec of a folder.

  Usage:

  >>> codec = load_image_codec("runs/codec")
  >>> string = codec.compress(images)     # uint8 [n, h, w, 3], any size
  >>> codec.decompress(string)            # uint8 [n, h, w, 3]
  >>> export(codec, "codec")              # a SavedModel

  Args:
    vqvae_data: the stored VQ-VAE.
    bitswap_data: the stored Bit-Swap model.
    static_data: the stored static tables, or b"": chains are then coded with
      Bit-Swap alone.
    options: of `CodeCodec`.

  Attributes:
    fingerprint: of the VQ-VAE, eight bytes.
    codes: the lossless stage, a `CodeCodec`.
    depths: stages of the top and of the bottom level.
  """

  def __init__(
    self,
    vqvae_data: bytes,
    bitswap_data: bytes,
    static_data: bytes = b"",
    **options: int,
  ):
    super().__init__()
    model = constant_weights.load_vqvae(vqvae_data)
    bit_swap_model = constant_weights.load_bit_swap(bitswap_data)
    shape = bit_swap_model.get_config()
    own = model.get_config()
    depths = tuple(shape[f"{level}_depth"] for level in ("top", "bottom"))
    if depths != (own["top_depth"], own["bottom_depth"]):
      raise UserError(
        f"the codec's models do not belong together: Bit-Swap has depths "
        f"{depths}, the VQ-VAE {own['top_depth'], own['bottom_depth']}."
      )
    static = None
    if static_data:
      fingerprint = model_file.fingerprint(static_data)
      static = (StaticCoder.from_bytes(static_data), fingerprint)
    self.fingerprint = model_file.fingerprint(vqvae_data)
    self.depths = depths
    # The functions hold all weights; the Keras models are not exported.
    self._parts = _Untracked(
      model,
      CodeCodec(
        BitSwap(bit_swap_model),
        model_file.fingerprint(bitswap_data),
        *depths,
        static=static,
        **options,
      ),
    )

  @property
  def codes(self) -> CodeCodec:
    """The lossless stage."""
    return self._parts.codes

  def encode(
    self, images: np.ndarray | tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Images to codes.

    Args:
      images: uint8 [n, h, w, 3].

    Returns:
      top, int32 [n, ceil(h/8), ceil(w/8), depth], and bottom, int32
      [n, 2·ceil(h/8), 2·ceil(w/8), depth].

    Raises:
      UserError: if images have another type or shape.
    """
    return self.encode_checked(_check_images(images))

  def compress(self, images: np.ndarray | tf.Tensor) -> tf.Tensor:
    """Images, uint8 [n, h, w, 3], to a string [].

    Raises:
      UserError: if images have another type or shape.
    """
    return self.compress_checked(_check_images(images))

  @tf.function(
    autograph=False,
    input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)],
  )
  def encode_checked(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`encode` of a tensor that has the right type and shape."""
    size = tf.shape(images)
    with tf.control_dependencies(
      [
        tf.debugging.Assert(
          tf.reduce_all(size[1:3] > 0), ["the images have no pixels"]
        )
      ]
    ):
      images = tf.identity(images)
    encode = self._parts.vqvae.encode
    scales = ([tiles.CELL], [(tf.int32, 1), (tf.int32, 2)])
    return _in_parts(encode, [vqvae.pad_to_grid(images)], size[1:3], *scales)

  @tf.function(
    autograph=False, input_signature=[tf.TensorSpec([None] * 4, tf.int32)] * 2
  )
  def decode(self, top: tf.Tensor, bottom: tf.Tensor) -> tf.Tensor:
    """Codes to uint8 images of the padded size; crop with `[:, :h, :w]`."""
    books = zip((top, bottom), self.depths, strict=True)
    top, bottom = (
      tf.ensure_shape(level, [None, None, None, depth])
      for level, depth in books
    )
    size = tf.shape(bottom)
    (images,) = _in_parts(
      lambda *codes: [self._parts.vqvae.decode(*codes)],
      [top, bottom],
      4 * size[1:3],
      [1, 2],
      [(tf.uint8, tiles.CELL)],
    )
    return tf.ensure_shape(images, [None, None, None, 3])

  @tf.function(
    autograph=False,
    input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)],
  )
  def compress_checked(self, images: tf.Tensor) -> tf.Tensor:
    """`compress` of a tensor that has the right type and shape."""
    chains = self.codes.encode_chains(*self.encode_checked(images), 0)
    lengths = tf.strings.length(chains)
    numbers = tf.concat([tf.shape(images)[:3], tf.shape(chains), lengths], 0)
    header = tf.strings.join(
      [
        tf.constant(_MAGIC + bytes([_VERSION]) + self.fingerprint),
        tf.strings.reduce_join(from_number(tf.cast(numbers, tf.int64), 4)),
      ]
    )
    body = tf.strings.reduce_join(chains)
    return tf.strings.join([header, _checksum(header), body])

  @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
  def decompress(self, string: tf.Tensor) -> tf.Tensor:
    """The inverse of `compress`, as far as the codes allow."""
    size, top, bottom = self._open(string)
    return self.decode(top, bottom)[:, : size[1], : size[2]]

  @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
  def decompress_codes(self, string: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The codes in a string: exactly those that `encode` gave."""
    return self._open(string)[1:]

  def _open(self, string: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Checks a string; gives size, int32 [3], and the codes in it."""
    length = tf.strings.length(string)
    start = tf.strings.substr(string, 0, tf.minimum(length, _PREFIX))
    with tf.control_dependencies(self._prefix_checks(start)):
      start = tf.identity(start)
    numbers = _read_numbers(
      tf.strings.substr(start, _PREFIX - 4 * _NUMBERS, 4 * _NUMBERS)
    )
    end = _PREFIX + 4 * numbers[3]
    damaged = "the string is damaged: restore it from a copy"
    with tf.control_dependencies(
      [
        tf.debugging.Assert(
          (numbers[3] <= tf.cast(length, tf.int64))
          & (end + _CHECKSUM <= tf.cast(length, tf.int64)),
          [damaged],
        )
      ]
    ):
      end = tf.cast(tf.identity(end), tf.int32)
    header = tf.strings.substr(string, 0, end)
    stored = tf.strings.substr(string, end, _CHECKSUM)
    with tf.control_dependencies(
      [tf.debugging.Assert(tf.equal(stored, _checksum(header)), [damaged])]
    ):
      lengths = _read_numbers(tf.strings.substr(header, _PREFIX, end - _PREFIX))
    ends = tf.cast(end + _CHECKSUM, tf.int64) + tf.cumsum(lengths)
    whole = tf.concat([[end + _CHECKSUM], tf.cast(ends, tf.int32)], axis=0)
    with tf.control_dependencies(
      [tf.debugging.Assert(tf.equal(whole[-1], length), [damaged])]
    ):
      starts = tf.identity(whole[:-1])
    chains = tf.strings.substr(
      tf.fill(tf.shape(starts), string), starts, tf.cast(lengths, tf.int32)
    )
    top, bottom = self.codes.decode_chains(chains)
    size = tf.cast(numbers[:3], tf.int32)
    grid = -(-size[1:] // vqvae.STRIDE)
    # No chain, no grid: the codes of no images have none either.
    want = tf.concat([size[:1], tf.where(size[0] > 0, grid, 0)], axis=0)
    with tf.control_dependencies(
      [
        tf.debugging.Assert(
          tf.reduce_all(tf.equal(tf.shape(top)[:3], want)), [damaged]
        )
      ]
    ):
      # Given back with the grid of the images, so that none have a size too.
      shapes = [
        tf.concat([size[:1], factor * grid, [depth]], axis=0)
        for factor, depth in zip((1, 2), self.depths, strict=True)
      ]
      return size, tf.reshape(top, shapes[0]), tf.reshape(bottom, shapes[1])

  def _prefix_checks(self, start: tf.Tensor) -> list[tf.Operation]:
    """Says what a string is, if it is not one of this codec."""
    mark = len(_MAGIC)
    filled = tf.strings.join([start, tf.constant(b"\0" * _PREFIX)])
    version = to_number(tf.strings.substr(filled, mark, 1)[tf.newaxis], 1)[0]
    conditions = (
      (
        tf.equal(tf.strings.substr(filled, 0, mark), _MAGIC),
        "this is no string of compressed images: give what compress returned",
      ),
      (
        version <= _VERSION,
        "the string has a newer format than this codec reads: update it",
      ),
      (
        tf.equal(tf.strings.length(start), _PREFIX),
        "the string is cut off: it is shorter than its header",
      ),
      (
        tf.equal(tf.strings.substr(filled, mark + 1, 8), self.fingerprint),
        "the string was written with another VQ-VAE: use the codec that wrote "
        "it",
      ),
    )
    checks = []
    for condition, sentence in conditions:
      with tf.control_dependencies(checks):
        checks.append(tf.debugging.Assert(condition, [sentence]))
    return checks


class _Untracked:
  """Holds what is not to be exported with a module."""

  def __init__(self, model: vqvae.HierarchicalVQVAE, codes: CodeCodec):
    self.vqvae = model
    self.codes = codes


def load_image_codec(folder: str | pathlib.Path, **options: int) -> ImageCodec:
  """Loads the codec of a folder.

  Args:
    folder: with both stages; where it has no static tables (`static.ibst`),
      chains are coded with Bit-Swap alone.
    options: of `CodeCodec`.
  """
  folder = pathlib.Path(folder)
  pretrained.check_folder(folder)
  tables = folder / pretrained.STATIC_FILE
  return ImageCodec(
    (folder / pretrained.VQVAE_FILE).read_bytes(),
    (folder / pretrained.BITSWAP_FILE).read_bytes(),
    tables.read_bytes() if tables.is_file() else b"",
    **options,
  )


def export(codec: ImageCodec, path: str | os.PathLike[str]) -> None:
  """Writes a codec as a SavedModel, wholly or not at all.

  It needs `import tensorflow_compression` to be loaded, and nothing of this
  package. It has `encode`, `decode`, `compress`, `decompress` and
  `decompress_codes`. TensorFlow builds a restored function anew, for seconds,
  whenever images have a new shape, unless it was built for all shapes first:

  >>> codec = tf.saved_model.load("codec")
  >>> images = tf.TensorSpec([None, None, None, 3], tf.uint8)
  >>> codec.compress.get_concrete_function(images)

  Args:
    codec: which one.
    path: a folder that is not there yet, or an empty one, or an older export
      to replace.
  """
  path = pathlib.Path(path)
  part = files.beside(path)
  try:
    tf.saved_model.save(_exported(codec), str(part))
    if (path / "saved_model.pb").is_file():
      shutil.rmtree(path)
    os.replace(part, path)
  finally:
    shutil.rmtree(part, ignore_errors=True)


def _exported(codec: ImageCodec) -> tf.Module:
  """The functions of a codec under the names that users of an export know."""
  module = tf.Module()
  module.encode = _refusing(codec.encode_checked)
  module.compress = _refusing(codec.compress_checked)
  module.decode = codec.decode
  module.decompress = codec.decompress
  module.decompress_codes = codec.decompress_codes
  return module


def _refusing(function: tf.types.experimental.GenericFunction):
  """A `tf.function` of images that asserts what `_check_images` checks.

  It has no signature, because a signature makes TensorFlow cast arrays. It has
  one graph per type instead: that of uint8 calls the function, and all others
  only fail.

  Args:
    function: takes uint8 [n, h, w, 3].
  """
  outputs = function.get_concrete_function().structured_outputs

  def checked(images: tf.Tensor):
    shape = tf.shape(images)
    is_right = tf.equal(tf.size(shape), 4) & tf.reduce_all(shape[3:] == 3)
    is_right &= images.dtype == tf.uint8
    sentence = tf.strings.format(_refusal(images.dtype, "{}"), shape)
    with tf.control_dependencies([tf.debugging.Assert(is_right, [sentence])]):
      if images.dtype != tf.uint8:
        return tf.nest.map_structure(
          lambda output: tf.zeros([0] * output.shape.rank, output.dtype),
          outputs,
        )
      # TensorFlow infers shapes before it runs a graph, but not into branches:
      # a wrong shape would otherwise end in a traceback, not in the sentence.
      images = tf.cond(
        is_right,
        lambda: tf.ensure_shape(images, [None, None, None, 3]),
        lambda: tf.zeros([0, 1, 1, 3], tf.uint8),
      )
    return function(images)

  result = tf.function(checked, autograph=False)
  result.get_concrete_function(tf.TensorSpec([None, None, None, 3], tf.uint8))
  for dtype in (tf.uint8, *_OTHER_TYPES):
    result.get_concrete_function(tf.TensorSpec(None, dtype, "images"))
  return result


def _check_images(images: np.ndarray | tf.Tensor) -> tf.Tensor:
  """Refuses all but uint8 [n, h, w, 3]."""
  if not tf.is_tensor(images):
    images = np.asarray(images)
  shape = tf.TensorShape(images.shape)
  if images.dtype != tf.uint8 or not shape.is_compatible_with([None] * 3 + [3]):
    shown = shape.as_list() if shape.rank is not None else "of unknown shape"
    raise UserError(f"{_refusal(images.dtype, shown)}.")
  return tf.convert_to_tensor(images)


def _refusal(dtype: tf.DType | np.dtype, shape: object) -> str:
  """Says what images are and what they should be, without a full stop."""
  if dtype == tf.uint8:
    return f"images are uint8 {shape}: give uint8 [n, height, width, 3]"
  remedy = "give uint8 0..255"
  if "float" in dtype.name:
    remedy += ", e.g. (255 * images).astype('uint8') if they lie in 0..1"
  return f"images are {dtype.name} {shape}: {remedy}"


def _in_parts(function, arguments, size, scales, results):
  """Calls a function of images on a few at once, or on tiles of one.

  Args:
    function: of tensors [n, …] to tensors [n, …].
    arguments: its tensors.
    size: int32 [2], height and width of an image in pixels.
    scales: of the arguments, see `tiles.over_tiles`.
    results: likewise.
  """
  pixels = tf.reduce_prod(tf.cast(size, tf.int64))

  def on_tiles(*images):
    return tiles.over_tiles(function, images, scales, results)

  branches = [
    lambda part=part: _in_batches(
      part, arguments, pixels, [dtype for dtype, _ in results]
    )
    for part in (on_tiles, function)
  ]
  return tf.cond(pixels > _TILE_PIXELS, *branches)


def _in_batches(function, arguments, pixels, dtypes):
  """Calls a function of images, not on all at once, and joins the results.

  Args:
    function: of tensors [n, …] to tensors [n, …].
    arguments: its tensors.
    pixels: int64 [], of one image.
    dtypes: of the results, each of which has four axes.
  """
  count = tf.shape(arguments[0])[0]
  size = tf.clip_by_value(pixels, 1, _BATCH_PIXELS)
  size = _BATCH_PIXELS // tf.cast(size, tf.int32)
  # Not every kernel takes an empty batch: no images are one that is cut off
  # again, so that the result has the right size.
  calls = tf.maximum(1, -(-count // size))
  arguments = [
    tf.cond(
      count > 0,
      lambda value=value: value,
      lambda value=value: tf.zeros(
        tf.concat([[1], tf.shape(value)[1:]], axis=0), value.dtype
      ),
    )
    for value in arguments
  ]
  parts = [
    tf.TensorArray(dtype, calls, infer_shape=False, element_shape=[None] * 4)
    for dtype in dtypes
  ]

  def body(number, parts):
    start = number * size
    results = function(*(value[start : start + size] for value in arguments))
    written = [
      part.write(number, result)
      for part, result in zip(parts, results, strict=True)
    ]
    return number + 1, written

  _, parts = tf.while_loop(
    lambda number, _: number < calls, body, [0, parts], parallel_iterations=1
  )
  return tuple(part.concat()[:count] for part in parts)


def _read_numbers(string: tf.Tensor) -> tf.Tensor:
  """A string [] of big-endian u32 to int64 [numbers]."""
  count = tf.strings.length(string) // 4
  starts = 4 * tf.range(count)
  pieces = tf.strings.substr(
    tf.fill([count], string), starts, tf.fill([count], 4)
  )
  return to_number(pieces, 4)


def _checksum(header: tf.Tensor) -> tf.Tensor:
  return message.join_bytes(tf.fingerprint(header[tf.newaxis]))[0]
