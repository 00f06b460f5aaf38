"""Chains on the disk become the batches that codes in RAM would become."""

import itertools
import os

import numpy as np
import pytest
import tensorflow as tf
from tiny_codec import write_codec
from tiny_step import Onlooker, TinyCodecs, files_in, make_task

from ibdrr_tf import config as defaults
from ibdrr_tf.codec.lossless.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.errors import UserError
from ibdrr_tf.learner import Learner
from ibdrr_tf.replay import stream_feed
from ibdrr_tf.replay.code_memory import CodeMemory
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.feeds import CodeFeed, Twins
from ibdrr_tf.replay.manifest import MemoryFolder
from ibdrr_tf.replay.memory import Setting
from ibdrr_tf.replay.stream_feed import StreamFeed

CHAIN, BATCH, SIZE = 4, 5, (16, 16)
IMAGE_BYTES = 2 * (2 * 2 + 4 * 4)
FIELDS = ("top", "bottom", "drawn")


def make_codes(count, seed, held_out=True):
  """Codes of which no two are alike; a third only tests."""
  generator = np.random.default_rng(seed)
  marks = generator.random(count) < 0.3 if held_out else None
  levels = (
    generator.integers(0, 16, (count, side, side, 1)).astype(np.int16)
    for side in (2, 4)
  )
  labels = np.sort(generator.integers(0, 5, count)).astype(np.int32)
  return Codes(*levels, labels, marks)


class Kept:
  """A store of three steps, and new codes."""

  def __init__(self, root, coder):
    write_codec(root / "codec", 0)
    self.vqvae = vqvae_file.from_bytes((root / "codec/vqvae.ibvq").read_bytes())
    self.folder = MemoryFolder(root / "memory")
    self.store = CodeStore(self.folder, root / "codec", coder)
    self.parts = [make_codes(n, n) for n in (11, 7)]
    # A chain of images that only test, and one that has none of them.
    last = make_codes(8, 8, held_out=False)
    last.held_out[:CHAIN] = True
    self.parts.append(last)
    for step, codes in enumerate(self.parts):
      part = self.store.append(step, codes)
      self.folder.write(step, {self.store.PART: part})
    self.all = Codes.join(self.parts)
    self.new = make_codes(9, 3, held_out=False)
    self.training = Codes.join([self.all.take(~self.all.held_out), self.new])

  def feed(self, buffer=6, new=None, **options):
    return StreamFeed(
      self.store.blocks(),
      self.new if new is None else new,
      self.vqvae,
      SIZE,
      ram_bytes=2 * buffer * IMAGE_BYTES,
      **options,
    )


@pytest.fixture(scope="module")
def coder():
  return BitSwapCodec(chain_images=CHAIN, group=2)


@pytest.fixture(scope="module")
def kept(tmp_path_factory, coder):
  return Kept(tmp_path_factory.mktemp("kept"), coder)


def batches(feed, epochs, seed=5, batch_size=BATCH, share=stream.WHOLE):
  """Batches in NumPy: a list of (inputs, labels)."""
  return list(
    feed.training_batches(
      batch_size=batch_size,
      epochs=epochs,
      seed=stream.fold_in(seed),
      augment=Augmentation(2),
      share=share,
    ).as_numpy_iterator()
  )


def join(some):
  """All examples of some batches, as a list of bytes with their labels."""
  return [
    (int(label), *(inputs[name][row].tobytes() for name in ("top", "bottom")))
    for inputs, labels in some
    for row, label in enumerate(labels)
  ]


def drawn(some):
  """The crops of all examples of some batches."""
  return np.concatenate([inputs["drawn"] for inputs, _ in some]).tolist()


def assert_same(got, want):
  assert len(got) == len(want)
  for (mine, labels), (theirs, others) in zip(got, want, strict=True):
    np.testing.assert_array_equal(labels, others)
    for name in FIELDS:
      np.testing.assert_array_equal(mine[name], theirs[name])


def test_the_index_is_what_was_written(kept):
  blocks = kept.store.blocks()
  assert blocks.counts.tolist() == [4, 4, 3, 4, 3, 4, 4]
  np.testing.assert_array_equal(blocks.labels, kept.all.labels)
  np.testing.assert_array_equal(blocks.held_out, kept.all.held_out)
  for number in (5, 0, 2):
    codes = blocks.codes(number)
    for name in ("top", "bottom", "labels", "held_out"):
      want = getattr(kept.all, name)[blocks.rows(number)]
      np.testing.assert_array_equal(getattr(codes, name), want)
      assert getattr(codes, name).dtype == want.dtype


@pytest.mark.parametrize("buffer", [0, 6, 1000])
def test_every_training_image_comes_once_an_epoch(kept, buffer):
  ram = CodeFeed(kept.training, kept.vqvae, SIZE)
  feed = kept.feed(buffer)
  assert feed.steps(BATCH) == ram.steps(BATCH) and len(feed) == len(ram)
  np.testing.assert_array_equal(feed.labels, ram.labels)
  got, want = batches(feed, range(2, 3)), batches(ram, range(2, 3))
  assert sorted(join(got)) == sorted(join(want))
  assert [len(labels) for _, labels in got] == [len(la) for _, la in want]
  for name in FIELDS:
    assert got[0][0][name].dtype == want[0][0][name].dtype
    assert got[0][0][name].shape == want[0][0][name].shape


def test_held_out_images_never_appear(kept):
  held = kept.all.take(kept.all.held_out)
  tests = set(join([({"top": held.top, "bottom": held.bottom}, held.labels)]))
  assert len(tests) == kept.all.held_out.sum() > CHAIN
  assert not tests & set(join(batches(kept.feed(), range(3))))


def test_a_chain_of_held_out_images_is_not_decoded(kept, monkeypatch):
  feed, read = kept.feed(), []
  real = feed._blocks.read
  monkeypatch.setattr(feed._blocks, "read", lambda n: read.append(n) or real(n))
  batches(feed, range(1))
  assert sorted(read) == [0, 1, 2, 3, 4, 6]


def test_epochs_differ_and_repeat(kept):
  feed = kept.feed()
  one, other = batches(feed, range(1)), batches(feed, range(1, 2))
  assert_same(one, batches(kept.feed(), range(1)))
  assert join(one) != join(other) and sorted(join(one)) == sorted(join(other))
  assert join(one) != join(batches(feed, range(1), seed=6))
  # Crops are drawn anew too.
  rows = [dict(zip(join(b), drawn(b), strict=True)) for b in (one, other)]
  assert sum(rows[0][key] != rows[1][key] for key in rows[0]) > len(feed) // 2


def test_an_interrupted_training_sees_the_same_batches(kept):
  whole = batches(kept.feed(), range(4))
  steps = kept.feed().steps(BATCH)
  assert len(whole) == 4 * steps
  for epoch in (1, 3):
    assert_same(batches(kept.feed(), range(epoch, 4)), whole[epoch * steps :])


def test_images_of_distant_blocks_meet_in_the_buffer(kept):
  """Without a buffer, a batch sees two or three blocks; with one, more."""

  def neighbours(buffer):
    seen = join(batches(kept.feed(buffer), range(1), batch_size=CHAIN))
    place = {key: n // CHAIN for n, key in enumerate(order)}
    blocks = [place[key] for key in seen]
    return np.mean([a == b for a, b in itertools.pairwise(blocks)])

  codes = kept.training
  order = join([({"top": codes.top, "bottom": codes.bottom}, codes.labels)])
  assert neighbours(1000) < neighbours(0)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_share_every_epoch_without_repeats(kept, workers):
  feed = kept.feed()
  shares = [stream.Share(workers, range(n, n + 1)) for n in range(workers)]
  parts = [batches(feed, range(2), share=share) for share in shares]
  steps = feed.steps(BATCH, workers)
  want = batches(CodeFeed(kept.training, kept.vqvae, SIZE), range(2))
  for epoch in range(2):
    of_epoch = slice(epoch * steps, (epoch + 1) * steps)
    seen = [join(part[of_epoch]) for part in parts]
    assert sorted(itertools.chain(*seen)) == sorted(join(want[of_epoch]))
    for number in range(workers):
      for other in range(number):
        assert not set(seen[number]) & set(seen[other])
  for step in range(2 * steps):
    sizes = [len(part[step][1]) for part in parts]
    assert sum(sizes) == len(want[step][1]) and min(sizes) > 0


def test_replicas_of_one_process_divide_the_same_batches(kept):
  """As for codes in RAM: how many devices there are changes no batch."""
  feed = kept.feed()
  share = stream.Share(2, range(2))
  halves, whole = batches(feed, range(1), share=share), batches(feed, range(1))
  pairs = [join(halves[n : n + 2]) for n in range(0, len(halves), 2)]
  assert pairs == [join([batch]) for batch in whole]


def test_only_new_images_or_only_old_ones(kept):
  nothing = kept.new.take(np.zeros(0, np.int64))
  old = kept.feed(new=nothing)
  assert len(join(batches(old, range(1)))) == (~kept.all.held_out).sum()
  new = StreamFeed(None, kept.new, kept.vqvae, SIZE, ram_bytes=100)
  want = batches(CodeFeed(kept.new, kept.vqvae, SIZE), range(1))
  assert sorted(join(batches(new, range(1)))) == sorted(join(want))


def test_twins_belong_to_their_codes(kept):
  """A twin's first pixel is the number of its example."""
  count = len(kept.training)
  images = np.zeros((count, *SIZE, 3), np.uint8)
  images[:] = np.arange(count, dtype=np.uint8)[:, None, None, None]
  number = np.arange(count)
  number[::3] = -1
  twins = Twins(in_memory(images, kept.training.labels), number)
  feed = kept.feed(twins=twins)
  codes = kept.training
  keys = join([({"top": codes.top, "bottom": codes.bottom}, codes.labels)])
  for inputs, labels in batches(feed, range(1)):
    for row, key in enumerate(join([(inputs, labels)])):
      example = keys.index(key)
      assert inputs["has_raw"][row] == (number[example] >= 0)
      if inputs["has_raw"][row]:
        assert (inputs["raw"][row] == example).all()
  # In the training step both get the same crop.
  inputs, _ = batches(feed, range(1))[0]
  prepared = feed.preparation(Augmentation(2))(
    {name: tf.constant(values) for name, values in inputs.items()}
  )
  assert prepared.images.shape == (BATCH, *SIZE, 3)
  assert prepared.raw.shape == prepared.images.shape


@pytest.fixture
def own(tmp_path, coder):
  return Kept(tmp_path, coder)


def test_damage_is_found_by_the_index(own):
  path = own.folder.path / "codes-001.tfrecord"
  whole = path.read_bytes()
  for place in range(0, len(whole), 11):
    damaged = bytearray(whole)
    damaged[place] ^= 0x41
    path.write_bytes(damaged)
    with pytest.raises(UserError, match=r"codes-001\.tfrecord.*: restore it"):
      own.store.blocks()
  for data in (whole[:-5], whole + b"x"):
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"codes-001\.tfrecord.*: restore it"):
      own.store.blocks()
  path.write_bytes((own.folder.path / "codes-000.tfrecord").read_bytes())
  with pytest.raises(UserError, match="not hold what its manifest"):
    own.store.blocks()
  path.unlink()
  with pytest.raises(UserError, match=r"codes-001\.tfrecord is missing"):
    own.store.blocks()


def test_damage_that_comes_later_is_named_too(own):
  feed = own.feed()
  assert feed.failure is None
  path = own.folder.path / "codes-000.tfrecord"
  whole = bytearray(path.read_bytes())
  whole[100] ^= 0x41  # Within a chain.
  path.write_bytes(whole)
  with pytest.raises(tf.errors.OpError):
    batches(feed, range(1))
  assert isinstance(feed.failure, UserError)
  assert "codes-000.tfrecord" in str(feed.failure)
  path.unlink()
  with pytest.raises(UserError, match=r"codes-000\.tfrecord is missing"):
    own.store.blocks()


def test_what_is_rewritten_in_parts_is_what_is_rewritten_at_once(
  own, monkeypatch
):
  chosen = np.arange(len(own.all)) % 5 > 0
  whole = own.store.replace(3, own.all.take(chosen), None)
  path = own.folder.path / "codes-003.tfrecord"
  data = path.read_bytes()
  path.unlink()
  cuts = np.split(np.flatnonzero(chosen), [1, 2, 9, 9, 15])
  parts = (own.all.take(cut) for cut in cuts)
  monkeypatch.setattr("ibdrr_tf.replay.code_store._SIDE_BY_SIDE", 2)
  assert own.store.rewrite(3, parts) == whole
  assert path.read_bytes() == data


# What follows is about a whole memory, and a learner.


class Memories:
  """Opens memories of a folder with some RAM."""

  def __init__(self, root, codecs):
    self.root, self.codecs = root, codecs

  def open(self, name, ram_bytes, step=-1, **fields):
    config = defaults.get_config()
    config.data.ram_bytes = ram_bytes
    config.replay.cache = "codes"
    config.update_from_flattened_dict(fields)
    folder = self.root / name
    codec = self.codecs.make(folder / "codec")
    setting = Setting(config, folder / "memory", (16, 16, 3), codec)
    return CodeMemory(setting, step, raw="none")


@pytest.fixture(scope="module")
def codecs():
  return TinyCodecs()


@pytest.fixture
def memories(tmp_path, codecs):
  codecs.fits.clear()
  return Memories(tmp_path, codecs)


TASKS = (
  make_task(0, {0: 9, 1: 6}, held_out={0: 1, 1: 2}),
  make_task(1, {2: 5, 1: 7}, 2, held_out={2: 2}),
  make_task(2, {3: 4}, 3),
)


def test_a_memory_streams_what_exceeds_its_ram(memories, monkeypatch):
  memory = memories.open("small", 10)
  assert isinstance(memory.examples(TASKS[0]), StreamFeed)
  memory.add(TASKS[0], Onlooker())
  codes = memory._store.contents["codes"]
  need = 2 * (codes + memory._encoded(TASKS[1]).count)
  assert 2 * codes < need - 1  # The old ones alone would fit.
  feed = memories.open("small", need, 0).examples(TASKS[1])
  assert isinstance(feed, CodeFeed)
  monkeypatch.setattr(CodeStore, "read", None)
  feed = memories.open("small", need - 1, 0).examples(TASKS[1])
  assert isinstance(feed, StreamFeed)


def test_streamed_codes_are_only_appended(memories, monkeypatch):
  """`refit` is `always`, which in RAM would write everything anew."""
  fields = {"bitswap.refit": "always"}
  memory = memories.open("small", 10, **fields)
  rival = memories.open("large", 1 << 30, **{"bitswap.refit": "never"})
  monkeypatch.setattr(CodeMemory, "read", None)  # Nobody may decode it all.
  monkeypatch.setattr(CodeStore, "read", None)
  kept = {}
  for number, task in enumerate(TASKS):
    feed = memory.examples(task)
    assert len(join(batches(feed, range(1)))) == len(feed)
    memory.add(task, Onlooker())
    memory.settle()
    after = files_in(memory.folder.path)
    chains = {k: v for k, v in after.items() if k.endswith(".tfrecord")}
    assert chains.items() >= kept.items() and len(chains) == number + 1
    kept = chains
  # A model was fitted once, as there was none.
  assert memories.codecs.fits == [18]
  monkeypatch.undo()
  for task in TASKS:
    rival.add(task, Onlooker())
    rival.settle()
  for name in ("top", "bottom", "labels", "held_out"):
    np.testing.assert_array_equal(
      getattr(memory.read(), name), getattr(rival.read(), name)
    )


def fill(memory, tasks=TASKS):
  for task in tasks:
    memory.add(task, Onlooker())
    memory.settle()
  return memory


def test_held_out_images_come_from_their_chains_alone(memories, monkeypatch):
  small = fill(memories.open("small", 10, **{"bitswap.refit": "never"}))
  large = fill(memories.open("large", 1 << 30, **{"bitswap.refit": "never"}))
  monkeypatch.setattr(type(small._store), "read", None)
  small = memories.open("small", 10, 2)
  got = small.held_out()
  monkeypatch.undo()
  want = large.held_out()
  np.testing.assert_array_equal(got.labels, want.labels)
  numbers = tf.range(len(got), dtype=tf.int64)
  np.testing.assert_array_equal(got.read(numbers), want.read(numbers))
  # Without any there is nothing to decode.
  none = fill(memories.open("none", 10), [make_task(0, {0: 5})])
  assert none.held_out() is None


def test_a_class_is_forgotten_chain_by_chain(memories, monkeypatch):
  fields = {"bitswap.refit": "never"}
  small, large = (
    fill(memories.open(name, ram, **fields))
    for name, ram in (("small", 10), ("large", 1 << 30))
  )
  large.forget(3, 1)
  monkeypatch.setattr(CodeStore, "read", None)
  small.forget(3, 1)
  assert small.folder.parts == large.folder.parts
  for memory in (small, large):
    memory.settle()
  assert files_in(small.folder.path) == files_in(large.folder.path)


def test_a_byte_budget_holds_chain_by_chain(memories, monkeypatch):
  fields = {"bitswap.refit": "never"}
  free = fill(memories.open("free", 1 << 30, **fields))
  stored = free.stored_bytes()
  total = sum(v for k, v in stored.items() if k not in ("images", "codes"))
  fields["memory.total_bytes"] = total + 300
  small, large = (
    memories.open(name, ram, **fields)
    for name, ram in (("small", 10), ("large", 1 << 30))
  )
  fill(large)
  monkeypatch.setattr(CodeStore, "read", None)
  fill(small)
  assert small.dropped == large.dropped > 0
  assert files_in(small.folder.path) == files_in(large.folder.path)


def learner_config(codec):
  config = defaults.learner_config()
  config.classifier.updates = 0
  config.method = "drr"
  config.codec = str(codec)
  config.classifier.backbone = "resnet8"
  config.classifier.width = 2
  config.classifier.epochs = 2
  config.classifier.batch_size = 8
  config.classifier.padding = 1
  config.memory.exemplars_per_class = 2
  config.data.ram_bytes = 10
  return config


@pytest.mark.parametrize("method", ["drr", "ib_drr"])
def test_a_learner_streams_and_rewrites_nothing(tmp_path, method):
  config = learner_config(write_codec(tmp_path / "codec", 0))
  config.method = method
  generator = np.random.default_rng(0)

  def pictures(names, count):
    labels = [name for name in names for _ in range(count)]
    shape = (len(labels), 16, 16, 3)
    return generator.integers(0, 256, shape).astype(np.uint8), labels

  learner = Learner(tmp_path / "S", config=config)
  learner.learn(pictures(["cat", "dog"], 10))
  memory = tmp_path / "S" / "memory"
  first = memory / "codes-000.tfrecord"
  data = first.read_bytes()
  os.utime(first, ns=(1, 1))
  record = learner.learn(pictures(["ant", "dog"], 6))
  assert first.read_bytes() == data and first.stat().st_mtime_ns == 1
  assert (memory / "codes-001.tfrecord").is_file()
  assert record["images"] == 10 and record["accuracy"]["old"] is not None
  assert learner.ledger().images == 32
  again = Learner(tmp_path / "S")
  images, _ = pictures(["x"], 3)
  np.testing.assert_array_equal(
    again.predict(images).probabilities, learner.predict(images).probabilities
  )


def test_a_learner_names_a_chain_that_breaks_while_it_trains(
  tmp_path, monkeypatch
):
  config = learner_config(write_codec(tmp_path / "codec", 0))
  learner = Learner(tmp_path / "S", config=config)
  images = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
  learner.learn((images, ["cat"] * 10 + ["dog"] * 10))
  path = tmp_path / "S" / "memory" / "codes-000.tfrecord"
  size = path.stat().st_size

  def breaks(*args, **options):
    path.write_bytes(bytes(size))
    return real(*args, **options)

  real = StreamFeed.training_batches
  monkeypatch.setattr(stream_feed.StreamFeed, "training_batches", breaks)
  with pytest.raises(UserError, match=r"codes-000\.tfrecord"):
    learner.learn((images[::-1], ["ant"] * 20))
