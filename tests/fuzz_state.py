"""Targets of `fuzz`: single files of a state."""

import json
import shutil

import numpy as np
import tensorflow as tf
from fuzz_target import Target
from mutations import PLACES, mutate, mutate_json, put, sealed_json

from ibdrr_tf import state as states
from ibdrr_tf import training
from ibdrr_tf.distribution import Team
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.manifest import MemoryFolder

__all__ = ["Checkpoints", "Memories", "States"]


class Memories(Target):
  def __init__(self, root):
    super().__init__(root)
    self.models = root / "codec"
    folder = MemoryFolder(root / "whole")
    top, bottom = (
      level.numpy().astype(np.int16) for level in self.codec.encode(self.images)
    )
    labels = np.arange(6, dtype=np.int32) // 2
    self.codes = Codes(top, bottom, labels, labels == 1)
    # Graphs are built once.
    self.store = CodeStore(folder, self.models)
    part = self.store.replace(0, self.codes, self.store.model())
    folder.write(0, {CodeStore.PART: part})
    self.store.settle()
    (self.file,) = (root / "whole").glob("*.tfrecord")
    (self.record,) = tf.data.TFRecordDataset(str(self.file)).as_numpy_iterator()
    self.manifest = (root / "whole" / "manifest-000.json").read_bytes()

  def whole_inputs(self):
    return [(self.manifest, self.file.read_bytes())]

  def make(self, generator):
    """(manifest, file), one of which is changed."""
    whole = self.file.read_bytes()
    kind = generator.integers(0, 4)
    if kind == 0:
      return mutate(generator, self.manifest), whole
    if kind == 1:
      return self.manifest, mutate(generator, whole)
    body = json.loads(self.manifest)
    if kind == 2:
      return sealed_json(mutate_json(generator, body)), whole
    path = self.root / "changed.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
      writer.write(mutate(generator, self.record))
    data = path.read_bytes()
    body["parts"]["codes"]["files"] = {self.file.name: len(data)}
    return sealed_json(json.dumps(body).encode()), data

  def read(self, data):
    folder = self.root / "memory"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "manifest-000.json").write_bytes(data[0])
    (folder / self.file.name).write_bytes(data[1])
    opened = MemoryFolder(folder)
    opened.check()
    store = CodeStore(opened, self.models, self.store._coder)
    codes = store.read()
    np.testing.assert_array_equal(codes.top, self.codes.top)
    np.testing.assert_array_equal(codes.bottom, self.codes.bottom)
    store.blocks()


class States(Target):
  STATE = states.State(
    step=1,
    classes=("a", "b"),
    image_shape=(8, 8, 3),
    config={"seed": 0, "memory": {"total_bytes": 3}},
    network={"classes": 2, "old_classes": 1},
    steps=({"step": 0, "images": 3, "classes": ["a"]},),
  )

  def __init__(self, root):
    self.root = root
    states.write_state(root, self.STATE)
    self.whole = (root / "state.json").read_bytes()

  def make(self, generator):
    if generator.integers(0, 2):
      return mutate(generator, self.whole)
    return sealed_json(mutate_json(generator, json.loads(self.whole)))

  def read(self, data):
    (self.root / "state.json").write_bytes(data)
    states.read_state(self.root)

  modules = (states,)

  @property
  def seeds(self):
    return [self.whole]

  def sealed(self, data):
    """JSON with its checksum, where it is JSON."""
    return sealed_json(data)


class Checkpoints(Target):
  """Traces of a training in progress, which the next attempt goes on from."""

  def __init__(self, root):
    self.root = root
    self.job = training.Fit(3, 1, lambda *_: None, root / "c", root / "t", "x")
    # One model serves all inputs.
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=[4])])
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    self.model = model
    state = self._state()
    model.set_weights([np.full(w.shape, 0.5) for w in model.get_weights()])
    state.model = model
    state.on_epoch_begin(0)
    state.on_epoch_end(0)
    self.weights = model.get_weights()
    shutil.copytree(root / "c", root / "whole")
    self.names = sorted(path.name for path in (root / "whole").iterdir())

  def _state(self):
    return training._State(
      self.model, self.job, Team(tf.distribute.get_strategy())
    )

  def whole_inputs(self):
    return [("", b"")]

  def make(self, generator):
    name = self.names[generator.integers(0, len(self.names))]
    if not generator.integers(0, 8):
      return name, PLACES[generator.integers(0, len(PLACES))]
    return name, mutate(generator, (self.root / "whole" / name).read_bytes())

  def read(self, data):
    name, content = data
    shutil.rmtree(self.root / "c")
    shutil.copytree(self.root / "whole", self.root / "c")
    if name:
      put(self.root / "c" / name, content)
    self.model.set_weights([np.zeros(w.shape) for w in self.weights])
    epoch = self._state().restore()
    assert epoch in (0, 1)
    if epoch:
      got = self.model.get_weights()
      for one, other in zip(got, self.weights, strict=True):
        np.testing.assert_array_equal(one, other)
