import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec.lossless import code_tree, planes


@pytest.mark.parametrize(
  ("depths", "grid"), [((1, 1), (4, 4)), ((2, 3), (1, 5)), ((1, 2), (3, 1))]
)
def test_planes_hold_every_code_once(depths, grid):
  """Each code has its own number, so a misplaced one shows."""
  height, width = grid
  sizes = (
    (2, height, width, depths[0]),
    (2, 2 * height, 2 * width, depths[1]),
  )
  count = int(np.prod(sizes[0]))
  top = np.arange(count).reshape(sizes[0])
  bottom = count + np.arange(np.prod(sizes[1])).reshape(sizes[1])
  joined = planes.to_planes(
    tf.constant(top, tf.int32), tf.constant(bottom, tf.int32)
  )
  assert joined.shape == (2, height, width, depths[0] + 4 * depths[1])
  assert sorted(joined.numpy().ravel()) == list(range(joined.numpy().size))
  back = planes.from_planes(joined, *depths)
  np.testing.assert_array_equal(back[0], top)
  np.testing.assert_array_equal(back[1], bottom)


def test_bottom_phases_lie_below_their_top_code():
  bottom = tf.constant(np.arange(16).reshape(1, 4, 4, 1), tf.int32)
  joined = planes.to_planes(tf.zeros([1, 2, 2, 1], tf.int32), bottom)
  # At top position (1, 0) lie rows 2-3, columns 0-1: 8, 9, 12, 13.
  assert joined[0, 1, 0].numpy().tolist() == [0, 8, 13, 9, 12]


def test_levels_name_the_codebook_of_each_plane():
  assert planes.plane_levels(1, 1) == [0, 1, 1, 1, 1]
  assert planes.plane_levels(2, 2) == [0, 1] + [2] * 4 + [3] * 4


def test_trees_give_every_code_its_own_path():
  codebook = np.random.default_rng(0).normal(size=(64, 5))
  leaf = code_tree.make_tree(codebook)
  assert sorted(leaf) == list(range(64))
  nodes, bits = code_tree.bits_of_codes(leaf)
  assert nodes.shape == bits.shape == (64, 6)
  assert len({tuple(path) for path in bits}) == 64
  assert (nodes[:, 0] == 0).all()
  # The children of node k are 2k + 1 and 2k + 2; leaves come after all nodes.
  np.testing.assert_array_equal(
    nodes[:, 1:], 2 * nodes[:, :-1] + 1 + bits[:, :-1]
  )
  np.testing.assert_array_equal(2 * nodes[:, -1] + 1 + bits[:, -1] - 63, leaf)


def test_trees_keep_neighbours_together():
  """Two far clusters part at the root."""
  generator = np.random.default_rng(1)
  codebook = generator.normal(size=(16, 3)) * 0.1
  codebook[::2] += 10
  _, bits = code_tree.bits_of_codes(code_tree.make_tree(codebook))
  assert len(set(bits[::2, 0])) == 1 and len(set(bits[1::2, 0])) == 1
  assert bits[0, 0] != bits[1, 0]
