"""Storage of a Bit-Swap model: its integers, and nothing else.

Kernels and tables are one byte a weight, biases four, before Huffman coding.
The trees are stored too; whoever decodes need not have the VQ-VAE.
"""

from typing import Any

import numpy as np

from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import integer
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossless.planes import plane_levels

__all__ = ["from_bytes", "to_bytes"]

_MAGIC = b"IBBS"
# 2: latents may have a coarser grid. 3: no latents, or blank codes, or small
# kernels between latents; who needs none of that is still written as 2.
_VERSION = 3
# What a stored configuration may say.
_RANGES = {
  "top_depth": range(256),
  "bottom_depth": range(1, 64),
  "latents": range(256),
  "latent_channels": range(1, 1 << 12),
  "latent_stride": tuple(1 << bits for bits in range(16)),
  "width": range(1, 1 << 12),
  "blocks": range(256),
  "embedding": range(1, 1 << 12),
  "latent_kernel": (1, 3),
  "blank": (False, True),
  "seed": model_file.SEEDS,
}
# What the sizes of the largest weights follow from.
_SHAPE = ("top_depth", "bottom_depth", "latents", "latent_channels")
_SHAPE += ("width", "blocks", "embedding")
_SIZES = tuple(1 << bits for bits in range(1, 16))


def to_bytes(model: BitSwapModel) -> bytes:
  """The stored form of a model; checks that its sums are exact."""
  model.check_exact()
  arrays = [tree.astype("<u2") for tree in model.trees]
  for layer in model.integer_layers():
    if isinstance(layer, integer.IntegerConv):
      kernel, bias = layer.integers()
      arrays += [kernel.numpy().astype(np.int8), bias.numpy().astype("<i4")]
    else:
      arrays.append(layer.integers().numpy().astype(np.int8))
  header = {
    "config": model.get_config(),
    "codes": [len(tree) for tree in model.trees],
  }
  config = header["config"]
  is_new = not config["latents"] or {"blank", "latent_kernel"} & set(config)
  version = _VERSION if is_new else _VERSION - 1
  return model_file.pack(_MAGIC, version, header, arrays)


def from_bytes(data: bytes) -> BitSwapModel:
  """The model that `to_bytes` stored: all its integers are the same.

  Raises:
    UserError: if the data are no Bit-Swap model, damaged, or of a newer
      version.
  """
  header, body = model_file.unpack(data, _MAGIC, _VERSION, "Bit-Swap model")
  config = model_file.check_config(header.get("config"), _RANGES, body, _SHAPE)
  trees = _read_trees(header.get("codes"), config, body)
  body.check_holds(_least_bytes([len(tree) for tree in trees], config))
  model = BitSwapModel(trees, **config)
  for layer in model.integer_layers():
    if isinstance(layer, integer.IntegerConv):
      kernel = _take_weights(body, layer.kernel.shape)
      bias = body.take(layer.bias.shape, "<i4").astype(np.float32)
      layer.kernel.assign(kernel / integer.WEIGHT_UNIT)
      layer.bias.assign(bias / integer.SUM_UNIT)
    else:
      table = _take_weights(body, layer.table.shape)
      layer.table.assign(table / layer.unit)
  body.check_end()
  model.check_exact()
  return model


def _take_weights(body: model_file.Body, shape: list[int]) -> np.ndarray:
  values = body.take(shape, np.int8)
  if (values == -128).any():
    raise body.forged("it has a weight of -128, which none is stored as")
  return values.astype(np.float32)


def _read_trees(
  sizes: Any, config: dict[str, Any], body: model_file.Body
) -> list[np.ndarray]:
  """The tree of each codebook; all of them are permutations."""
  count = config["top_depth"] + config["bottom_depth"]
  if not isinstance(sizes, list) or len(sizes) != count:
    raise body.forged(f"its header has no sizes of {count} codebooks")
  trees = []
  for size in sizes:
    model_file.check_config({"codebook": size}, {"codebook": _SIZES}, body)
    tree = body.take([size], "<u2").astype(np.int32)
    if not np.array_equal(np.sort(tree), np.arange(size)):
      raise body.forged("a tree has a leaf twice")
    trees.append(tree)
  return trees


def _least_bytes(codes: list[int], config: dict[str, Any]) -> int:
  """Bytes of the largest weights of a model, which need not be made for it."""
  top, bottom, latents, channels, width, blocks, embedding = (
    config[word] for word in _SHAPE
  )
  planes = len(plane_levels(top, bottom))
  tables = sum(codes) * embedding + sum(size - 1 for size in codes) * width
  kernels = 9 * (planes - 1) * embedding * width + 18 * blocks * width**2
  if latents:
    area = config.get("latent_kernel", 3) ** 2
    kernels += planes * embedding * width + area * width**2
    kernels += 2 * latents * area * (width // 2) * channels
  return tables + kernels
