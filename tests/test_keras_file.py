import zipfile

import h5py
import numpy as np
import tensorflow as tf

from ibdrr_tf import keras_file


def test_a_file_has_the_names_of_both_versions(tmp_path):
  """`test_stacks.py` loads files of one version in the other."""
  inputs = tf.keras.Input((4,))
  model = tf.keras.Model(inputs, tf.keras.layers.Dense(3)(inputs[:, 1:]))
  keras_file.save(model, tmp_path / "m.keras")
  with zipfile.ZipFile(tmp_path / "m.keras") as archive:
    config = archive.read("config.json")
    with (
      archive.open("model.weights.h5") as weights,
      h5py.File(weights) as file,
    ):
      old, new = (
        file[name]["dense/vars/0"]
        for name in ("_layer_checkpoint_dependencies", "layers")
      )
      assert old == new  # The same place in the file.
      np.testing.assert_array_equal(old[:], model.get_weights()[0])
  assert b"tf_keras" not in config and b'"keras.src.' in config
  again = tf.keras.models.load_model(tmp_path / "m.keras")
  for one, other in zip(again.weights, model.weights, strict=True):
    np.testing.assert_array_equal(one, other)
