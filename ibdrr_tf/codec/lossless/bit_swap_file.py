"""Storage of a Bit-Swap model: its integers, and nothing else.

Kernels and tables are one byte a weight, biases four, before Huffman coding.
The trees are stored too; whoever decodes need not have the VQ-VAE.
"""

import numpy as np

from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import integer
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel

__all__ = ["from_bytes", "to_bytes"]

_MAGIC = b"IBBS"
# 2: latents may have a coarser grid. 3: no latents, or blank codes, or small
# kernels between latents; who needs none of that is still written as 2.
_VERSION = 3


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
  trees = [
    body.take([count], "<u2").astype(np.int32) for count in header["codes"]
  ]
  model = BitSwapModel(trees, **header["config"])
  for layer in model.integer_layers():
    if isinstance(layer, integer.IntegerConv):
      kernel = body.take(layer.kernel.shape, np.int8).astype(np.float32)
      bias = body.take(layer.bias.shape, "<i4").astype(np.float32)
      layer.kernel.assign(kernel / integer.WEIGHT_UNIT)
      layer.bias.assign(bias / integer.SUM_UNIT)
    else:
      table = body.take(layer.table.shape, np.int8).astype(np.float32)
      layer.table.assign(table / layer.unit)
  return model
