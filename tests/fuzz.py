"""Throws damaged and forged inputs at everything that reads files.

    python tests/fuzz.py TARGET|all [--inputs=10000] [--seed=0] [--atheris]

| target      | what is damaged, and who reads it                             |
|-------------|---------------------------------------------------------------|
| archives    | an archive, by the functions of `decompress`                  |
| commands    | an archive, by the command `decompress`, which writes files   |
| chains      | chains of codes                                               |
| models      | stored models of a codec                                      |
| memories    | manifest and chains of a memory                               |
| states      | `state.json`                                                  |
| folders     | any file of a state, by a learner that classifies and reads   |
| checkpoints | the checkpoint of a training in progress                      |
| strings     | strings of `ImageCodec.compress`, as a SavedModel has them    |

Most inputs have right checksums, which anyone can compute. Whatever comes must
give one sentence or, where no checksum was computed anew, exactly what was
written. No input may take more than a second and a second a kilobyte of the
processor, or make the process grow by a gigabyte. With --atheris, where it is
installed (pip install atheris), coverage guides the inputs of archives,
commands, models and states.
"""

import abc
import argparse
import collections
import contextlib
import functools
import hashlib
import inspect
import io
import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import unittest.mock
import zlib

import numpy as np
import tensorflow as tf
from mutations import mutate, mutate_json
from PIL import Image
from tiny_codec import write_codec
from tiny_config import tiny_learner_config

from ibdrr_tf import learner, learner_report, training
from ibdrr_tf import state as states
from ibdrr_tf.classifier_folder import ClassifierFolder
from ibdrr_tf.codec import __main__ as codec_command
from ibdrr_tf.codec import archive, commands, constant_weights, model_file
from ibdrr_tf.codec.image_codec import load_image_codec
from ibdrr_tf.codec.lossless import bit_swap_file, chain, static
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.codec_training import lossy
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.distribution import Team
from ibdrr_tf.errors import UserError
from ibdrr_tf.learner import Learner
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.manifest import MemoryFolder

_SECONDS, _MEGABYTES = 1.0, 1000
_HANGS = 120  # seconds by the clock, on a machine that may be busy


def sha(data):
  return hashlib.sha256(data).digest()[:8]


class Target(abc.ABC):
  """Makes inputs and reads them; see the module."""

  def __init__(self, root):
    self.root = root
    self.codec = load_image_codec(
      write_codec(root / "codec", 0), chain_images=20, group=8
    )
    generator = np.random.default_rng(0)
    self.images = generator.integers(0, 256, (6, 16, 16, 3), np.uint8)

  def whole_inputs(self):
    """What was written, for which graphs are built first."""
    return [self.whole]

  @abc.abstractmethod
  def make(self, generator):
    """An input: bytes, or a pair."""

  @abc.abstractmethod
  def read(self, data):
    """Reads an input; raises UserError, or ends well."""

  def close(self):
    """Undoes what making it has changed."""

  # Modules whose coverage guides atheris, and what it may begin with.
  modules = ()
  seeds = ()

  def sealed(self, data):
    """An input of bytes that atheris made, with right checksums."""
    raise NotImplementedError


class Archives(Target):
  def __init__(self, root):
    super().__init__(root)
    top, bottom = self.codec.encode(self.images)
    names = tuple(f"d/{k}.png" for k in range(6))
    self.archive = archive.Archive(
      self.codec.fingerprint,
      (1, 1),
      ((16, 16),) * 6,
      names,
      (tuple(self.codec.codes.compress(top, bottom)),),
    )
    self.whole = archive.pack(self.archive)
    self.decoded = self.codec.decode(top, bottom).numpy()
    _, _, _, packed, _ = struct.unpack_from("<5sB8sII", self.whole)
    self.index = json.loads(zlib.decompress(self.whole[30 : 30 + packed]))
    self.body = self.whole[30 + packed : -8]

  def make(self, generator):
    kind = generator.integers(0, 4)
    if kind == 0:
      return mutate(generator, self.whole)
    if kind == 1:
      data = mutate(generator, self.whole)[:-8]
      return data + sha(data)
    text, body = mutate_json(generator, self.index), self.body
    if kind == 3:
      text, body = json.dumps(self.index).encode(), mutate(generator, body)
    return self._join(text, body)

  def _join(self, text, body):
    """An archive with right checksums."""
    packed = zlib.compress(text)
    data = struct.pack(
      *("<5sB8sII", b"IBDRR", 1, self.codec.fingerprint),
      *(len(packed), len(text)),
    )
    data += sha(data + packed) + packed + body
    return data + sha(data)

  modules = (archive, commands, chain)

  @property
  def seeds(self):
    text = json.dumps(self.index).encode()
    return [struct.pack("<H", len(text)) + text + self.body]

  def sealed(self, data):
    """Two bytes say how long the index is; the chains come after it."""
    end = 2 + int.from_bytes(data[:2], "little")
    return self._join(data[2:end], data[end:])

  def read(self, data):
    opened = archive.unpack(data, "f")
    for name in commands._png_names(opened):
      path = (self.root / "out" / name).resolve()
      assert path.is_relative_to(self.root / "out"), name
    groups = commands.open_groups(opened, self.codec, "f")
    got = dict(commands.decoded_images(opened, groups, self.codec))
    if opened.sizes == self.archive.sizes:
      images = np.stack([got[k] for k in range(6)])
      np.testing.assert_array_equal(images, self.decoded)


class Commands(Archives):
  """The same through the command itself, which writes files."""

  KINDS = ("out", "out.npy", "out.png", "codes.npz")

  def __init__(self, root):
    super().__init__(root)
    (root / "outside").mkdir()
    (root / "outside" / "precious.png").write_bytes(b"precious")
    self.listing = self._listing()

  def _listing(self):
    """What there is outside of the output folder."""
    return sorted(
      path
      for path in self.root.rglob("*")
      if "cell" not in path.relative_to(self.root).parts
    )

  def make(self, generator):
    kind = self.KINDS[min(int(generator.integers(0, 6)), 3)]
    return kind.encode() + b"|" + super().make(generator)

  def whole_inputs(self):
    return [b"out|" + self.whole, b"codes.npz|" + self.whole]

  def read(self, data):
    name, _, data = data.partition(b"|")
    if name.decode("latin-1") not in self.KINDS:
      name = b"out"  # Of a mutation that knows nothing of names.
    cell = self.root / "cell"
    shutil.rmtree(cell, ignore_errors=True)
    # A link that an archive might want to write through.
    (cell / "out").mkdir(parents=True)
    (cell / "a.ibdrr").write_bytes(data)
    output = cell / name.decode()
    if name != b"out":
      (cell / "out").rmdir()
    codes = ["--codes"] if name == b"codes.npz" else []
    arguments = ["decompress", str(cell / "a.ibdrr"), "-o", str(output)]
    with (
      unittest.mock.patch.object(commands, "_load", lambda *_: self.codec),
      contextlib.redirect_stdout(io.StringIO()),
    ):
      codec_command.main(["codec", *arguments, *codes])
    assert {path.name for path in cell.iterdir()} == {"a.ibdrr", output.name}
    assert self._listing() == self.listing
    if output.is_dir():
      names = sorted(path for path in output.rglob("*") if path.is_file())
      opened = archive.unpack(data, "f")
      assert len(names) == len(opened.sizes), names
      if opened.sizes == self.archive.sizes:
        # Names may be forged, pixels not.
        got = [np.asarray(Image.open(path)).tobytes() for path in names]
        assert sorted(got) == sorted(image.tobytes() for image in self.decoded)


class Chains(Target):
  def __init__(self, root):
    super().__init__(root)
    codes = self.codec.encode(np.tile(self.images, (4, 1, 1, 1)))
    self.chains = self.codec.codes.compress(*codes)
    self.chains += self.codec.codes.compress(*(c[:1] for c in codes))

  def whole_inputs(self):
    return self.chains

  def make(self, generator):
    data = self.chains[generator.integers(0, len(self.chains))]
    fields = chain.HEADER_BYTES - 8
    header, text = data[:fields], data[fields + 8 :]
    if generator.integers(0, 2):
      header = bytearray(header)
      for place in generator.integers(9, fields, generator.integers(1, 4)):
        header[place] = generator.choice(
          [0, 1, 2, 255, generator.integers(256)]
        )
      header = bytes(header)
    else:
      text = mutate(generator, text)
    if not generator.integers(0, 10):
      return mutate(generator, data)
    checksum = tf.fingerprint([header + text]).numpy()[0].tobytes()
    return header + checksum + text

  def read(self, data):
    self.codec.codes.shapes([data])
    self.codec.codes.decompress([data])


OPENERS = {
  "vqvae.ibvq": constant_weights.load_vqvae,
  "bitswap.ibbs": constant_weights.load_bit_swap,
  "static.ibst": static.StaticCoder.from_bytes,
}


def _forged_model(generator, data):
  """A stored model, most often with a right checksum."""
  prefix, length = data[:6], struct.unpack_from("<I", data, 6)[0]
  header, packed = json.loads(data[10 : 10 + length]), data[10 + length : -8]
  text, kind = json.dumps(header).encode(), generator.integers(0, 4)
  if kind == 0:
    return mutate(generator, data)
  if kind == 1:
    text = mutate_json(generator, header)
  elif kind == 2:
    packed = mutate(generator, packed)
  else:
    packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    body = mutate(generator, zlib.decompress(packed))
    packed = packer.compress(body) + packer.flush()
  data = prefix + struct.pack("<I", len(text)) + text + packed
  return data + sha(data)


class Models(Target):
  def whole_inputs(self):
    folder = self.root / "codec"
    return [(name, (folder / name).read_bytes()) for name in OPENERS]

  def make(self, generator):
    name = list(OPENERS)[generator.integers(0, 3)]
    data = (self.root / "codec" / name).read_bytes()
    return name, _forged_model(generator, data)

  modules = (
    *(archive, model_file, constant_weights, vqvae_file, bit_swap_file, static),
  )

  @property
  def seeds(self):
    made = []
    for number, (_, data) in enumerate(self.whole_inputs()):
      length = struct.unpack_from("<I", data, 6)[0]
      head = bytes([number]) + struct.pack("<H", length)
      body = zlib.decompress(data[10 + length : -8])
      made.append(head + data[10 : 10 + length] + body)
    return made

  def sealed(self, data):
    """A byte for the kind, two for the header's length, header, weights."""
    name, whole = self.whole_inputs()[(data[:1] or b"\0")[0] % 3]
    end = 3 + int.from_bytes(data[1:3], "little")
    packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    made = whole[:6] + struct.pack("<I", len(data[3:end])) + data[3:end]
    made += packer.compress(data[end:]) + packer.flush()
    return name, made + sha(made)

  def read(self, named):
    name, data = named
    OPENERS[name](data)


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
      return _sealed(mutate_json(generator, body)), whole
    path = self.root / "changed.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
      writer.write(mutate(generator, self.record))
    data = path.read_bytes()
    body["parts"]["codes"]["files"] = {self.file.name: len(data)}
    return _sealed(json.dumps(body).encode()), data

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


def _sealed(text):
  """JSON with its checksum computed anew, as manifests and states have it."""
  try:
    body = json.loads(text)
    body.pop("checksum", None)
  except (ValueError, AttributeError, RecursionError, TypeError):
    return text
  plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
  body["checksum"] = hashlib.sha256(plain.encode()).hexdigest()[:16]
  return json.dumps(body).encode()


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
    return _sealed(mutate_json(generator, json.loads(self.whole)))

  def read(self, data):
    (self.root / "state.json").write_bytes(data)
    states.read_state(self.root)

  modules = (states,)

  @property
  def seeds(self):
    return [self.whole]

  def sealed(self, data):
    """JSON with its checksum, where it is JSON."""
    return _sealed(data)


# What stands in the place of a file.
_PLACES = ("missing", "empty", "folder", "fifo", "loop", "dangling", "mode")


class Folders(Target):
  """Every file of a state, through what a user does with it.

  A state is opened, its status told, its memory read, images are classified,
  and, unless checksums are forged, files that do not count are removed, as a
  repeated command does. A file that is whole stays.
  """

  METHODS = ("ib_drr", "sheet_replay")

  def __init__(self, root):
    self.root = root
    codec = write_codec(root / "codec", 0)
    generator = np.random.default_rng(0)
    self.images = generator.integers(0, 256, (16, 16, 16, 3), np.uint8)
    self.names = ["cat", "dog"] * 8
    self._share_graphs()
    self.answers, self.passing = {}, {}
    for method in self.METHODS:
      folder = root / "whole" / method
      config = tiny_learner_config(codec, method)
      Learner(folder, config=config).learn((self.images, self.names))
      # A step that was killed before its commit has left its traces.
      with (
        unittest.mock.patch.object(learner, "write_state", _die),
        contextlib.suppress(KeyboardInterrupt),
      ):
        Learner(folder).learn((self.images[:6], self.names[:6]))
      shutil.rmtree(folder / "tensorboard")
      shutil.copytree(folder, root / "state")
      self.answers[method] = self._use(root / "state", settle=True)
      left = {p.relative_to(root / "state") for p in _files(root / "state")}
      shutil.rmtree(root / "state")
      self.passing[method] = {
        path
        for path in (p.relative_to(folder) for p in _files(folder))
        if path not in left
      }

  def _share_graphs(self):
    """Models of files that are whole are built once; of others, always."""
    build, load = ClassifierFolder.build, lossy.load_vqvae

    @functools.lru_cache
    def known(text, owner):
      network, shape, _ = json.loads(text)
      return build(owner, network, tuple(shape))

    class Owner:
      """Is equal to every other one, so that the first counts."""

      def __init__(self, folder):
        self.folder = folder

      def __hash__(self):
        return 0

      def __eq__(self, other):
        return True

      def __getattr__(self, name):
        return getattr(self.folder, name)

    def shared_build(folder, network, shape):
      text = json.dumps([network, shape, folder._config.to_json()])
      if network.get("classes") == 2 and tuple(shape) == (16, 16, 3):
        return known(text, Owner(folder))
      return build(folder, network, shape)

    @functools.lru_cache(maxsize=4)
    def by_content(data):
      return vqvae_file.from_bytes(data)

    def shared_load(folder):
      whole = self.root / "codec" / "vqvae.ibvq"
      path = pathlib.Path(folder) / "vqvae.ibvq"
      if path.is_file() and path.read_bytes() == whole.read_bytes():
        return by_content(whole.read_bytes())
      return load(folder)

    patch = unittest.mock.patch.object
    self._patches = [
      patch(ClassifierFolder, "build", shared_build),
      patch(lossy, "load_vqvae", shared_load),
    ]
    for each in self._patches:
      each.start()

  def close(self):
    for each in self._patches:
      each.stop()

  def whole_inputs(self):
    return [(method, "", b"", b"") for method in self.METHODS]

  def make(self, generator):
    """(method, file, its place or bytes, a manifest with its size)."""
    method = self.METHODS[generator.integers(0, len(self.METHODS))]
    folder = self.root / "whole" / method
    paths = [p for p in _files(folder) if p.name != ".lock"]
    path = paths[generator.integers(0, len(paths))]
    name, data = str(path.relative_to(folder)), path.read_bytes()
    kind = generator.integers(0, 8)
    if kind == 0:
      return method, name, _PLACES[generator.integers(0, len(_PLACES))], b""
    if kind < 4:
      return method, name, mutate(generator, data), b""
    if path.suffix == ".json" and path.parent.name != "classifier":
      return (
        method,
        name,
        _sealed(mutate_json(generator, json.loads(data))),
        b"!",
      )
    if path.suffix in (".ibvq", ".ibbs", ".ibst"):
      return method, name, _forged_model(generator, data), b"!"
    if path.suffix == ".npz":
      return method, name, _forged_npz(generator, data), b"!"
    if path.suffix == ".tfrecord":
      data = self._forged_records(generator, path)
      manifest = json.loads((folder / "memory/manifest-000.json").read_bytes())
      for part in manifest["parts"].values():
        if path.name in part["files"]:
          part["files"][path.name] = len(data)
      return method, name, data, _sealed(json.dumps(manifest).encode())
    return method, name, mutate(generator, data), b""

  def _forged_records(self, generator, path):
    records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
    number = generator.integers(0, len(records))
    records[number] = mutate(generator, records[number])
    changed = self.root / "changed.tfrecord"
    with tf.io.TFRecordWriter(str(changed)) as writer:
      for record in records:
        writer.write(record)
    return changed.read_bytes()

  def read(self, data):
    method, name, content, manifest = data
    whole, folder = self.root / "whole" / method, self.root / "state"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    is_forged = bool(manifest)
    if name:
      _put(folder / name, content)
    if len(manifest) > 1:
      (folder / "memory/manifest-000.json").write_bytes(manifest)
    settled = False
    try:
      answer = self._use(folder, settle=not is_forged)
      settled = True
    finally:
      gone = self.passing[method] if settled else set()
      for path in _files(whole):
        short = path.relative_to(whole)
        if not is_forged and str(short) != name and short not in gone:
          if short.name in (".lock", ".published", "classifier.keras"):
            continue  # Written again.
          assert (folder / short).read_bytes() == path.read_bytes(), short
    if not is_forged:
      for one, other in zip(answer, self.answers[method], strict=True):
        np.testing.assert_array_equal(one, other)

  def _use(self, folder, settle):
    """What a user does; gives scores, and what memory remembers."""
    opened = Learner(folder)
    state = states.read_state(folder)
    if state is None:
      raise UserError(f"there is no state in {folder}.")
    learner_report.status(state, folder)
    json.dumps(learner_report.as_json(state))
    scores = opened.predict(self.images[:3]).probabilities
    opened.ledger()
    shape = opened.image_shape
    nothing = in_memory(np.zeros([0, *shape], np.uint8), np.zeros(0))
    count = len(opened.classes)
    task = Task(opened.step + 1, nothing, None, count, count)
    feed = opened.memory.examples(task)
    tests = opened.memory.held_out()
    kept = [scores, feed.labels]
    if tests is not None:
      numbers = tf.range(len(tests), dtype=tf.int64)
      kept += [tests.labels, tests.read(numbers)]
    if hasattr(feed, "images"):
      kept.append(np.asarray(feed.images))
    if hasattr(opened.memory, "read"):
      codes = opened.memory.read()
      kept += [codes.top, codes.bottom]
    if settle:
      with opened._changing():
        opened._open.settle()
    return kept


def _die(*_):
  raise KeyboardInterrupt


def _files(folder):
  return sorted(path for path in folder.rglob("*") if path.is_file())


def _put(path, content):
  """Puts bytes, or what one of `_PLACES` names, where a file was."""
  if isinstance(content, bytes):
    path.write_bytes(content)
    return
  if content == "mode":
    path.chmod(0)
    return
  path.unlink()
  if content == "empty":
    path.touch()
  elif content == "folder":
    (path / "inner").mkdir(parents=True)
  elif content == "fifo":
    os.mkfifo(path)
  elif content == "loop":
    path.symlink_to(path)
  elif content == "dangling":
    path.symlink_to(path.with_name("nowhere"))


def _forged_npz(generator, data):
  """Weights of other values, shapes or types, with right checksums."""
  with np.load(io.BytesIO(data)) as arrays:
    flat = arrays["weights"].copy()
  kind = generator.integers(0, 6)
  if kind == 0:
    flat[generator.integers(0, len(flat), 3)] = [np.nan, np.inf, 1e38]
  elif kind == 1:
    flat = flat[: generator.integers(0, len(flat))]
  elif kind == 2:
    flat = flat.astype(["O", "U", "i8", "c8"][generator.integers(0, 4)])
  elif kind == 3:
    flat = flat.reshape(1, -1)
  elif kind == 4:
    flat = np.zeros(1 << 24, np.float32)
  name = "weights" if kind < 5 else "others"
  buffer = io.BytesIO()
  np.savez_compressed(buffer, **{name: flat})
  return buffer.getvalue()


class Checkpoints(Target):
  """Traces of a training in progress, which the next attempt goes on from."""

  def __init__(self, root):
    self.root = root
    self.job = training.Fit(3, 1, lambda *_: None, root / "c", root / "t", "x")
    model, state = self._state()
    model.set_weights([np.full(w.shape, 0.5) for w in model.get_weights()])
    state.model = model
    state.on_epoch_begin(0)
    state.on_epoch_end(0)
    self.weights = model.get_weights()
    shutil.copytree(root / "c", root / "whole")
    self.names = sorted(path.name for path in (root / "whole").iterdir())
    # One model serves all inputs.
    self.shared = self._state()

  def _state(self):
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=[4])])
    model.compile(tf.keras.optimizers.SGD(0.1, momentum=0.9), "mse")
    return model, training._State(
      model, self.job, Team(tf.distribute.get_strategy())
    )

  def whole_inputs(self):
    return [("", b"")]

  def make(self, generator):
    name = self.names[generator.integers(0, len(self.names))]
    if not generator.integers(0, 8):
      return name, _PLACES[generator.integers(0, len(_PLACES))]
    return name, mutate(generator, (self.root / "whole" / name).read_bytes())

  def read(self, data):
    name, content = data
    shutil.rmtree(self.root / "c")
    shutil.copytree(self.root / "whole", self.root / "c")
    if name:
      _put(self.root / "c" / name, content)
    model, state = self.shared
    model.set_weights([np.zeros(w.shape) for w in self.weights])
    state._epoch.assign(0)
    epoch = state.restore()
    assert epoch in (0, 1)
    if epoch:
      for one, other in zip(model.get_weights(), self.weights, strict=True):
        np.testing.assert_array_equal(one, other)


class Strings(Target):
  def __init__(self, root):
    super().__init__(root)
    self.whole = self.codec.compress(self.images).numpy()
    self.decoded = self.codec.decompress(self.whole).numpy()
    chains = struct.unpack_from(">I", self.whole, 25)[0]
    self.end = 29 + 4 * chains

  def make(self, generator):
    if not generator.integers(0, 4):
      return mutate(generator, self.whole)
    header = bytearray(self.whole[: self.end])
    for _ in range(generator.integers(1, 3)):
      place = int(generator.integers(13, self.end))
      header[place] = generator.choice([0, 1, 2, 127, 128, 255])
    body = self.whole[self.end + 8 :]
    if generator.integers(0, 2):
      body = mutate(generator, body)
    checksum = tf.fingerprint([bytes(header)]).numpy()[0].tobytes()
    return bytes(header) + checksum + body

  def read(self, data):
    images = self.codec.decompress(data).numpy()
    if images.shape == self.decoded.shape:
      np.testing.assert_array_equal(images, self.decoded)


TARGETS = {
  "archives": Archives,
  "commands": Commands,
  "chains": Chains,
  "models": Models,
  "memories": Memories,
  "states": States,
  "folders": Folders,
  "checkpoints": Checkpoints,
  "strings": Strings,
}


def _length(data):
  return len(data) if isinstance(data, bytes) else sum(map(len, data))


def _hangs(*_):
  raise AssertionError(f"an input took {_HANGS} seconds")


def run(name, inputs, seed=0):
  """Reads so many inputs; gives how many were refused, and the worst of all."""
  with tempfile.TemporaryDirectory() as folder:
    target = TARGETS[name](pathlib.Path(folder).resolve())
    generator = np.random.default_rng(seed)
    told, slowest = collections.Counter(), 0.0
    for data in target.whole_inputs():
      target.read(data)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    handler = signal.signal(signal.SIGALRM, _hangs)
    for number in range(inputs):
      data = target.make(generator)
      began = time.process_time()
      signal.alarm(_HANGS)
      try:
        target.read(data)
        told["accepted"] += 1
      except UserError as error:
        sentence = str(error)
        assert "\n" not in sentence and sentence.endswith("."), sentence
        assert len(sentence) < 600, sentence
        told["refused"] += 1
      except Exception as error:
        shown = repr(data)[:2000]
        raise AssertionError(f"{name}, input {number}: {shown}") from error
      finally:
        signal.alarm(0)
      seconds = time.process_time() - began
      slowest = max(slowest, seconds)
      most = _SECONDS * (1 + _length(data) / 1000)
      assert seconds < most, (name, number, seconds, repr(data)[:2000])
    signal.signal(signal.SIGALRM, handler)
    target.close()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    grown /= 1e3
    assert grown < _MEGABYTES, (name, grown)
  return {**told, "slowest s": round(slowest, 2), "grown MB": round(grown)}


def _with_atheris(name, inputs):
  """Lets coverage of our own modules guide the inputs.

  Ends the process: libFuzzer does not return. It stops at the first input that
  raises anything but UserError.
  """
  try:
    import atheris  # Only where it is installed.
  except ImportError:
    sys.exit("atheris is not installed: pip install atheris, on Linux.")
  if not TARGETS[name].modules:
    guided = [known for known in TARGETS if TARGETS[known].modules]
    sys.exit(f"--atheris makes inputs of {', '.join(guided)}, not of {name}.")
  root = pathlib.Path(tempfile.mkdtemp()).resolve()
  target = TARGETS[name](root)
  for data in target.whole_inputs():
    target.read(data)
  told = collections.Counter()

  def one(data):
    try:
      target.read(target.sealed(data))
      told["accepted"] += 1
    except UserError as error:
      sentence = str(error)
      assert "\n" not in sentence and sentence.endswith("."), sentence
      told["refused"] += 1
    if not sum(told.values()) % 1000:
      print(f"{name}: {sum(told.values())} inputs, {dict(told)}", flush=True)

  for module in target.modules:
    for function in _functions(module):
      atheris.instrument_func(function)
  corpus = root / "corpus"
  corpus.mkdir()
  for number, seed in enumerate(target.seeds):
    (corpus / str(number)).write_bytes(seed)
  options = [f"-runs={inputs}", "-timeout=60", "-rss_limit_mb=3000"]
  options += ["-max_len=20000", f"-artifact_prefix={root}/"]
  atheris.Setup([sys.argv[0], *options, str(corpus)], one)
  atheris.Fuzz()


def _functions(module):
  """All functions of a module, and of its classes."""
  for value in vars(module).values():
    owners = [value]
    if inspect.isclass(value) and value.__module__ == module.__name__:
      owners = list(vars(value).values())
    for owner in owners:
      if inspect.isfunction(owner) and owner.__module__ == module.__name__:
        yield owner


def main():
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("target", choices=[*TARGETS, "all"])
  parser.add_argument("--inputs", type=int, default=10_000)
  parser.add_argument("--seed", type=int, default=0)
  parser.add_argument("--atheris", action="store_true")
  arguments = parser.parse_args()
  if arguments.atheris:
    _with_atheris(arguments.target, arguments.inputs)
    return
  names = TARGETS if arguments.target == "all" else [arguments.target]
  for name in names:
    result = run(name, arguments.inputs, arguments.seed)
    print(f"{name}: {arguments.inputs} inputs, {result}", flush=True)


if __name__ == "__main__":
  main()
