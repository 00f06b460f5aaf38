import numpy as np
import pytest

from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import image_records
from ibdrr_tf.replay.exemplars import ExemplarStore, most_that_fit


def random_images(count, seed=0):
  generator = np.random.default_rng(seed)
  return generator.integers(0, 256, (count, 12, 10, 3), dtype=np.uint8)


def test_images_come_back_exactly_by_phase_and_label(tmp_path):
  store = ExemplarStore(tmp_path / "memory", (2, 4))
  first, second = random_images(5), random_images(2, seed=1)
  store.write(0, first, np.array([1, 0, 1, 0, 1]))
  store.write(1, second, np.array([2, 3]))
  images, labels = store.read(1)
  assert labels.tolist() == [0, 0, 1, 1, 1, 2, 3]
  np.testing.assert_array_equal(
    images, np.concatenate([first[[1, 3, 0, 2, 4]], second])
  )
  assert store.read(0)[1].tolist() == [0, 0, 1, 1, 1]


def test_a_phase_written_again_replaces_itself(tmp_path):
  store = ExemplarStore(tmp_path, (1,))
  store.write(0, random_images(5), np.zeros(5, int))
  store.write(0, random_images(2), np.zeros(2, int))
  assert len(store.read(0)[1]) == 2


def test_stored_bytes_are_the_bytes_on_disk(tmp_path):
  store = ExemplarStore(tmp_path, (1,))
  store.write(0, random_images(5), np.zeros(5, int))
  on_disk = sum(p.stat().st_size for p in tmp_path.iterdir())
  assert store.stored_bytes == on_disk > 0


def test_damage_is_named_and_never_read(tmp_path):
  store = ExemplarStore(tmp_path, (1,))
  store.write(0, random_images(3), np.zeros(3, int))
  (path,) = tmp_path.iterdir()
  whole = path.read_bytes()
  for place in range(0, len(whole), 97):
    damaged = bytearray(whole)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(UserError, match="damaged"):
      store.read(0)
  path.write_bytes(whole[:-5])
  with pytest.raises(UserError, match=path.name):
    store.read(0)
  path.unlink()
  with pytest.raises(UserError, match="missing"):
    store.read(0)


def test_a_file_cut_off_between_records_is_damaged(tmp_path):
  """TFRecord's checksums do not notice that a record is missing."""
  store = ExemplarStore(tmp_path, (2,))
  store.write(0, random_images(1), np.zeros(1, int))
  (path,) = tmp_path.iterdir()
  first = path.stat().st_size
  store.write(0, random_images(2), np.arange(2))
  assert len(store.read(0)[1]) == 2
  whole = path.read_bytes()
  for length in (0, first):
    path.write_bytes(whole[:length])
    with pytest.raises(UserError, match="damaged"):
      store.read(0)


def test_the_size_of_a_file_is_known_before_it_is_written(tmp_path):
  labels = np.array([0] * 5 + [200] * 3)
  encoded = [bytes(n) for n in (1, 127, 128, 300, 20_000, 5, 6, 7)]
  image_records.write(tmp_path / "f", encoded, labels)
  sizes = {0: [1, 127, 128, 300, 20_000], 200: [5, 6, 7]}
  assert image_records.file_bytes(sizes) == (tmp_path / "f").stat().st_size


def test_the_largest_number_of_exemplars_that_fits():
  generator = np.random.default_rng(0)
  sizes = [generator.integers(50, 400, count) for count in (9, 4, 12)]

  def size(count):
    taken = {k: s[:count].tolist() for k, s in enumerate(sizes)}
    return image_records.file_bytes(taken)

  for budget in (size(1), size(3), size(3) - 1, size(7) + 5, 10**7):
    most = most_that_fit(sizes, budget)
    assert size(most) <= budget
    assert most == 12 or size(most + 1) > budget
  with pytest.raises(UserError, match=str(size(1))):
    most_that_fit(sizes, size(1) - 1)
