import growth
import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.errors import UserError
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import networks
from ibdrr_tf.replay.networks import read_network, write_network


def network(seed=0, size=3):
  set_random_seed(seed)
  layers = [
    tf.keras.layers.Dense(size, input_shape=[4]),
    tf.keras.layers.BatchNormalization(),
  ]
  return tf.keras.Sequential(layers)


def test_weights_and_statistics_come_back_exactly(tmp_path):
  path, old = tmp_path / "memory" / "network-000.npz", network(0)
  old.layers[1].moving_mean.assign([1.0, 2.0, 3.0])
  write_network(path, old.get_weights())
  new = network(1)
  read_network(path, new)
  for a, b in zip(old.get_weights(), new.get_weights(), strict=True):
    np.testing.assert_array_equal(a, b)


def test_a_file_is_little_more_than_its_weights_and_always_the_same(tmp_path):
  path = tmp_path / "network-000.npz"
  write_network(path, network().get_weights())
  # 4 bytes each, and one zip entry.
  assert 0 < path.stat().st_size - 4 * network().count_params() < 500
  first = path.read_bytes()
  write_network(path, network().get_weights())
  assert path.read_bytes() == first


def test_damage_and_other_networks_are_named(tmp_path):
  path = tmp_path / "network-000.npz"
  with pytest.raises(UserError, match=r"network-000\.npz is missing"):
    read_network(path, network())
  write_network(path, network().get_weights())
  with pytest.raises(UserError, match="network-000"):
    read_network(path, network(size=5))
  whole = path.read_bytes()
  damaged = bytearray(whole)
  damaged[len(whole) // 2] ^= 1
  for data in (damaged, whole[:-30], whole[:40], b""):
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged: restore it"):
      read_network(path, network())


def test_forged_files_get_a_sentence_and_little_memory(tmp_path):
  path = tmp_path / "network-000.npz"
  forged = [
    {"weights": np.zeros(1 << 27, np.float32)},  # Half a gigabyte, unpacked.
    {"weights": np.zeros((3, 9), np.float32)},
    {"weights": np.array("text")},
    {"other": np.zeros(27, np.float32)},
  ]
  for arrays in forged:
    np.savez_compressed(path, **arrays)
    with growth.at_most(100), pytest.raises(UserError, match="damaged"):
      read_network(path, network())
  np.save(tmp_path / "array.npy", np.zeros(3))
  path.write_bytes((tmp_path / "array.npy").read_bytes())
  with pytest.raises(UserError, match="damaged"):
    read_network(path, network())


def test_eight_bits_by_hand():
  kernel = np.array([[1.27, 0.0], [-0.636, 0.0]], np.float32)
  vector = np.array([0.1, 7.0, -3.0], np.float32)
  packed = networks.pack([kernel, vector, np.zeros([5, 0], np.float32)])
  # Two scales and three numbers of four bytes, and four levels.
  assert packed.dtype == np.uint8 and len(packed) == 4 * (2 + 3) + 4
  assert packed[-4:].view(np.int8).tolist() == [127, 0, -64, 0]
  again = networks.unpack(packed, [(2, 2), (3,), (5, 0)])
  np.testing.assert_allclose(again[0], [[1.27, 0], [-0.64, 0]], rtol=1e-6)
  np.testing.assert_array_equal(again[1], vector)
  with pytest.raises(ValueError, match="do not hold"):
    networks.unpack(packed, [(2, 2), (4,)])


def test_a_network_in_eight_bits_is_as_close_as_its_steps(tmp_path):
  path, old, new = tmp_path / "network-000.npz", network(0, 40), network(1, 40)
  write_network(path, old.get_weights(), "int8")
  assert path.stat().st_size == networks.eight_bit_size(old.get_weights())
  assert path.stat().st_size < 4 * 40 + 4 * 6 * 40 + 500
  read_network(path, new)
  for a, b in zip(old.get_weights(), new.get_weights(), strict=True):
    step = np.abs(a).max(axis=0) / 127 if a.ndim > 1 else 0
    assert (np.abs(a - b) <= step / 2 + 1e-7).all()
