import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.networks import NetworkStore


def network(seed=0, size=3):
  tf.keras.utils.set_random_seed(seed)
  layers = [
    tf.keras.layers.Dense(size, input_shape=[4]),
    tf.keras.layers.BatchNormalization(),
  ]
  return tf.keras.Sequential(layers)


def test_weights_and_statistics_come_back_exactly(tmp_path):
  store = NetworkStore(tmp_path / "memory", "network")
  old = network(0)
  old.layers[1].moving_mean.assign([1.0, 2.0, 3.0])
  store.write(0, old.get_weights())
  new = network(1)
  store.read(0, new)
  for a, b in zip(old.get_weights(), new.get_weights(), strict=True):
    np.testing.assert_array_equal(a, b)


def test_only_the_last_phase_is_kept_and_counted(tmp_path):
  store = NetworkStore(tmp_path, "network")
  (tmp_path / "generator-000.npz").write_bytes(b"another store's")
  for phase in range(3):
    store.write(phase, network(phase).get_weights())
  assert [store.holds(phase) for phase in range(3)] == [False, False, True]
  (path,) = tmp_path.glob("network-*")
  assert store.stored_bytes == path.stat().st_size
  # Weights are most of it: 4 bytes each, and one zip entry.
  assert 0 < store.stored_bytes - 4 * network().count_params() < 500
  first = path.read_bytes()
  store.write(2, network(2).get_weights())
  assert path.read_bytes() == first


def test_damage_and_other_networks_are_named(tmp_path):
  store = NetworkStore(tmp_path, "network")
  with pytest.raises(UserError, match="missing"):
    store.read(0, network())
  store.write(0, network().get_weights())
  with pytest.raises(UserError, match="network-000"):
    store.read(0, network(size=5))
  (path,) = tmp_path.iterdir()
  whole = bytearray(path.read_bytes())
  whole[len(whole) // 2] ^= 1
  path.write_bytes(whole)
  with pytest.raises(UserError, match="damaged"):
    store.read(0, network())
