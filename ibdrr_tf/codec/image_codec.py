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
from ibdrr_tf.codec import (
  checks,
  constant_weights,
  model_file,
  pretrained,
  tiles,
)
from ibdrr_tf.codec.lossless import message, planes
from ibdrr_tf.codec.lossless.bit_swap import BitSwap
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.codec.lossless.message import from_number, to_number
from ibdrr_tf.codec.lossless.static import StaticCoder
from ibdrr_tf.codec.lossy import vqvae
from ibdrr_tf.errors import UserError

__all__ = ["ImageCodec", "export", "load_image_codec"]

# What an export says of itself, for those who find it without this package.
_NOTE = """\
A codec of images, exported by ibdrr_tf. Its range coder is not part of
TensorFlow: import it before tf.saved_model.load, else TensorFlow says that an
op is not registered.

    import tensorflow_compression      # TensorFlow 2.14
    import tensorflow_compression_ops  # TensorFlow 2.17

pip install tensorflow-compression==2.14.1, or tensorflow-compression-ops==2.17.
Both load this model, whichever of them it was exported with.
"""
_MAGIC = b"IBDI"
_VERSION = 1
_NUMBERS = 4
_PREFIX = len(_MAGIC) + 1 + 8 + 4 * _NUMBERS
_CHECKSUM = 8
_DAMAGED = "the string is damaged: restore it from a copy"
_UNFIT = "the codec cannot code this: give uint8 images, or codes of this codec"
# Chains have 16 bits for a side of their grid.
_MOST_SIDE = vqvae.STRIDE * ((1 << 16) - 1)
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
    sizes = {len(tree) for tree in bit_swap_model.trees}
    if static_data:
      coder = StaticCoder.from_bytes(static_data)
      static = (coder, model_file.fingerprint(static_data))
      sizes.add(coder.tables.shape[2] - 1)
      levels = planes.plane_levels(*depths)
      if coder.tables.shape[1] != len(levels):
        raise UserError(
          f"the codec's models do not belong together: its static tables have "
          f"{coder.tables.shape[1]} planes, Bit-Swap has {len(levels)}."
        )
    if sizes != {own["codebook_size"]}:
      raise UserError(
        f"the codec's models do not belong together: the VQ-VAE has codebooks "
        f"of {own['codebook_size']} codes, its lossless stage of "
        f"{', '.join(map(str, sorted(sizes)))}."
      )
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
    images = _check_images(images)
    with checks.told(f"{_UNFIT}."):
      return self.encode_checked(images)

  def decode(
    self, top: np.ndarray | tf.Tensor, bottom: np.ndarray | tf.Tensor
  ) -> tf.Tensor:
    """Codes to uint8 images of the padded size; crop with `[:, :h, :w]`.

    Args:
      top: int32, as `encode` gives it.
      bottom: likewise.

    Raises:
      UserError: if they are not codes of this model.
    """
    with checks.told(f"{_UNFIT}."):
      return self.decode_checked(top, bottom)

  def compress(self, images: np.ndarray | tf.Tensor) -> tf.Tensor:
    """Images, uint8 [n, h, w, 3], to a string [].

    Raises:
      UserError: if images have another type or shape.
    """
    images = _check_images(images)
    with checks.told(f"{_UNFIT}."):
      return self.compress_checked(images)

  def decompress(self, string: bytes | tf.Tensor) -> tf.Tensor:
    """The inverse of `compress`, as far as the codes allow.

    Raises:
      UserError: if the string is damaged, cut off, of another codec or of a
        newer format.
    """
    string = _check_string(string)
    with checks.told(f"{_DAMAGED}."):
      return self.decompress_checked(string)

  def decompress_codes(
    self, string: bytes | tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """The codes in a string: exactly those that `encode` gave.

    Raises:
      UserError: as `decompress`.
    """
    string = _check_string(string)
    with checks.told(f"{_DAMAGED}."):
      return self.decompress_codes_checked(string)

  @tf.function(
    autograph=False,
    input_signature=[tf.TensorSpec([None, None, None, 3], tf.uint8)],
  )
  def encode_checked(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """`encode` of a tensor that has the right type and shape."""
    size = tf.shape(images)
    images, size = checks.guarded(
      (images, size), [(size[1:3] > 0, "the images have no pixels")]
    )
    grid = -(-size[1:3] // vqvae.STRIDE)
    return _in_parts(
      self._parts.vqvae.encode,
      [vqvae.pad_to_grid(images)],
      [tiles.CELL],
      [(tf.int32, shape) for shape in self._code_shapes(grid)],
      [1, 2],
    )

  def _code_shapes(self, grid: tf.Tensor) -> list[tf.Tensor]:
    """Height, width and depth of both levels, each int32 [3]."""
    return [
      tf.concat([factor * grid, [depth]], axis=0)
      for factor, depth in zip((1, 2), self.depths, strict=True)
    ]

  @tf.function(
    autograph=False, input_signature=[tf.TensorSpec([None] * 4, tf.int32)] * 2
  )
  def decode_checked(self, top: tf.Tensor, bottom: tf.Tensor) -> tf.Tensor:
    """`decode` in a graph, which raises errors of TensorFlow."""
    shapes = self._code_shapes(tf.shape(top)[1:3])
    shapes = [tf.concat([tf.shape(top)[:1], s], axis=0) for s in shapes]
    belong = [
      (
        tf.reduce_all(tf.equal(tf.shape(level), shape)),
        "the codes have shapes that do not belong together or to this model",
      )
      for level, shape in zip((top, bottom), shapes, strict=True)
    ]
    codes = self._parts.vqvae.get_config()["codebook_size"]
    top, bottom = (
      planes.known(tf.ensure_shape(level, [None, None, None, depth]), codes)
      for level, depth in zip(
        checks.guarded((top, bottom), belong), self.depths, strict=True
      )
    )
    size = vqvae.STRIDE * tf.shape(top)[1:3]
    (images,) = _in_parts(
      lambda *codes: [self._parts.vqvae.decode(*codes)],
      [top, bottom],
      [1, 2],
      [(tf.uint8, tf.concat([size, [3]], axis=0))],
      [tiles.CELL],
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
  def decompress_checked(self, string: tf.Tensor) -> tf.Tensor:
    """`decompress` in a graph, which raises errors of TensorFlow."""
    size, top, bottom = self._open(string)
    return self.decode_checked(top, bottom)[:, : size[1], : size[2]]

  @tf.function(autograph=False, input_signature=[tf.TensorSpec([], tf.string)])
  def decompress_codes_checked(
    self, string: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """`decompress_codes` in a graph, which raises errors of TensorFlow."""
    return self._open(string)[1:]

  def _open(self, string: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Checks a string; gives size, int32 [3], and the codes in it."""
    length = tf.cast(tf.strings.length(string), tf.int64)
    start = tf.strings.substr(
      string, 0, tf.minimum(tf.strings.length(string), _PREFIX)
    )
    start = checks.guarded(start, self._prefix_conditions(start))
    numbers = _read_numbers(
      tf.strings.substr(start, _PREFIX - 4 * _NUMBERS, 4 * _NUMBERS)
    )
    end = _PREFIX + 4 * numbers[3]
    end = checks.guarded(end, [(end + _CHECKSUM <= length, _DAMAGED)])
    end = tf.cast(end, tf.int32)
    header = tf.strings.substr(string, 0, end)
    stored = tf.strings.substr(string, end, _CHECKSUM)
    lengths = _read_numbers(tf.strings.substr(header, _PREFIX, end - _PREFIX))
    # What is declared is believed once the bytes are known to be there.
    numbers, lengths = checks.guarded(
      (numbers, lengths),
      [
        (tf.equal(stored, _checksum(header)), _DAMAGED),
        ((numbers[1:3] > 0) & (numbers[1:3] <= _MOST_SIDE), _DAMAGED),
        (numbers[:1] < 1 << 31, _DAMAGED),
        (lengths <= length, _DAMAGED),
        (
          tf.equal(
            tf.reduce_sum(lengths), length - _CHECKSUM - tf.cast(end, tf.int64)
          ),
          _DAMAGED,
        ),
      ],
    )
    lengths = tf.cast(lengths, tf.int32)
    starts = end + _CHECKSUM + tf.cumsum(lengths, exclusive=True)
    chains = tf.strings.substr(string, starts, lengths)
    top, bottom = self.codes.decode_chains(chains)
    size = tf.cast(numbers[:3], tf.int32)
    grid = -(-size[1:] // vqvae.STRIDE)
    # No chain, no grid: the codes of no images have none either.
    want = tf.concat([size[:1], tf.where(size[0] > 0, grid, 0)], axis=0)
    top, bottom = checks.guarded(
      (top, bottom), [(tf.equal(tf.shape(top)[:3], want), _DAMAGED)]
    )
    # Given back with the grid of the images, so that none have a size too.
    shapes = self._code_shapes(grid)
    shapes = [tf.concat([size[:1], s], axis=0) for s in shapes]
    return size, tf.reshape(top, shapes[0]), tf.reshape(bottom, shapes[1])

  def _prefix_conditions(self, start: tf.Tensor):
    """Says what a string is, if it is not one of this codec."""
    mark = len(_MAGIC)
    filled = tf.strings.join([start, tf.constant(b"\0" * _PREFIX)])
    version = to_number(tf.strings.substr(filled, mark, 1)[tf.newaxis], 1)[0]
    return (
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

  It needs `import tensorflow_compression` to be loaded, or, with TensorFlow
  2.17, `import tensorflow_compression_ops`, and nothing of this package;
  `assets.extra/README.txt` says so. Either loads what the other has written. It
  has `encode`, `decode`, `compress`, `decompress` and `decompress_codes`.
  TensorFlow builds a restored function anew, for seconds,
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
    # TensorFlow's name for files of one's own.
    (part / "assets.extra").mkdir()
    files.write_text(part / "assets.extra" / "README.txt", _NOTE)
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
  module.decode = codec.decode_checked
  module.decompress = codec.decompress_checked
  module.decompress_codes = codec.decompress_codes_checked
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


def _check_string(string: bytes | tf.Tensor) -> tf.Tensor:
  """Refuses all but one string."""
  if not tf.is_tensor(string):
    # An array of bytes would lose zeros at its end.
    kind = type(string).__name__
    string = tf.constant(string) if isinstance(string, bytes) else None
  else:
    kind = f"{string.dtype.name} {string.shape}"
  if string is None or string.dtype != tf.string or string.shape.rank:
    raise UserError(
      f"{kind} is not a string of compressed images: give the bytes that "
      f"compress returned."
    )
  return string


def _refusal(dtype: tf.DType | np.dtype, shape: object) -> str:
  """Says what images are and what they should be, without a full stop."""
  if dtype == tf.uint8:
    return f"images are uint8 {shape}: give uint8 [n, height, width, 3]"
  remedy = "give uint8 0..255"
  if "float" in dtype.name:
    remedy += ", e.g. (255 * images).astype('uint8') if they lie in 0..1"
  return f"images are {dtype.name} {shape}: {remedy}"


def _in_parts(function, arguments, scales, results, result_scales):
  """Calls a function of images on a few at once, or on tiles of one.

  Args:
    function: of tensors [n, …] to tensors [n, …].
    arguments: its tensors.
    scales: rows of a cell in each argument, see `tiles.over_tiles`.
    results: dtype of each result, and its shape without images, int32 [3].
    result_scales: rows of a cell in each result.
  """
  grid = tf.cast(tf.shape(arguments[0])[1:3] // scales[0], tf.int64)
  pixels = tiles.CELL**2 * tf.reduce_prod(grid)
  kinds = [
    (dtype, scale)
    for (dtype, _), scale in zip(results, result_scales, strict=True)
  ]

  def on_tiles(*images):
    return tiles.over_tiles(function, images, scales, kinds)

  branches = [
    lambda part=part: _in_batches(part, arguments, pixels, results)
    for part in (on_tiles, function)
  ]
  return tf.cond(pixels > _TILE_PIXELS, *branches)


def _in_batches(function, arguments, pixels, results):
  """Calls a function of images, not on all at once, and joins the results.

  Args:
    function: of tensors [n, …] to tensors [n, …].
    arguments: its tensors.
    pixels: int64 [], of one image.
    results: dtype of each result, and its shape without images, int32 [3].
  """
  count = tf.shape(arguments[0])[0]
  size = tf.clip_by_value(pixels, 1, _BATCH_PIXELS)
  size = _BATCH_PIXELS // tf.cast(size, tf.int32)
  calls = -(-count // size)
  parts = [
    tf.TensorArray(dtype, calls, infer_shape=False, element_shape=[None] * 4)
    for dtype, _ in results
  ]

  def body(number, parts):
    start = number * size
    batch = function(*(value[start : start + size] for value in arguments))
    written = [
      part.write(number, result)
      for part, result in zip(parts, batch, strict=True)
    ]
    return number + 1, written

  _, parts = tf.while_loop(
    lambda number, _: number < calls, body, [0, parts], parallel_iterations=1
  )
  # No images have a shape, too, but no batch to take it from.
  return tuple(
    tf.cond(
      count > 0,
      part.concat,
      lambda dtype=dtype, shape=shape: tf.zeros(
        tf.concat([[0], shape], axis=0), dtype
      ),
    )
    for part, (dtype, shape) in zip(parts, results, strict=True)
  )


def _read_numbers(string: tf.Tensor) -> tf.Tensor:
  """A string [] of big-endian u32 to int64 [numbers]."""
  count = tf.strings.length(string) // 4
  pieces = tf.strings.substr(string, 4 * tf.range(count), tf.fill([count], 4))
  return to_number(pieces, 4)


def _checksum(header: tf.Tensor) -> tf.Tensor:
  return message.join_bytes(tf.fingerprint(header[tf.newaxis]))[0]
