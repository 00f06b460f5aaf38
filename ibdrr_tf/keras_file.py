"""Keras files that Keras 2.14 and tf-keras 2.17 both load.

A `.keras` file is a zip archive of `config.json` and `model.weights.h5`. The
two versions write it alike but for two names:

                        Keras 2.14                       tf-keras 2.17
    package of layers   keras (2.17 knows it too)        tf_keras
    group of weights    _layer_checkpoint_dependencies   layers
"""

import io
import os
import zipfile

import h5py
import tensorflow as tf

__all__ = ["save"]

_CONFIG = "config.json"
_WEIGHTS = "model.weights.h5"
_GROUPS = {"_layer_checkpoint_dependencies", "layers"}


def save(model: tf.keras.Model, path: str | os.PathLike[str]) -> None:
  """Writes a functional model of Keras' own layers.

  Args:
    model: not compiled; an optimizer has names of its own.
    path: ends with `.keras`. The file is not written atomically.
  """
  model.save(path)
  with zipfile.ZipFile(path) as archive:
    parts = {name: archive.read(name) for name in archive.namelist()}
  parts[_CONFIG] = parts[_CONFIG].replace(b'"tf_keras.', b'"keras.')
  parts[_WEIGHTS] = _with_both_groups(parts[_WEIGHTS])
  with zipfile.ZipFile(path, "w") as archive:
    for name, data in parts.items():
      archive.writestr(name, data)


def _with_both_groups(data: bytes) -> bytes:
  """Gives the group of weights its second name; the weights stay one copy."""
  buffer = io.BytesIO(data)
  with h5py.File(buffer, "r+") as file:
    (name,) = _GROUPS & set(file)
    (other,) = _GROUPS - {name}
    file[other] = file[name]
  return buffer.getvalue()
