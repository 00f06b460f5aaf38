"""A target of `fuzz`: the whole folder of a state."""

import contextlib
import functools
import json
import pathlib
import shutil
import unittest.mock
import zlib

import numpy as np
import tensorflow as tf
from fuzz_target import Target
from mutations import (
  PLACES,
  forged_model,
  forged_npz,
  mutate,
  mutate_json,
  put,
  sealed_json,
  sha,
)
from tiny_codec import write_codec
from tiny_config import tiny_learner_config

from ibdrr_tf import classifier_folder, learner_report, open_state
from ibdrr_tf import state as states
from ibdrr_tf.classifier_folder import ClassifierFolder
from ibdrr_tf.codec.lossless.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.lossy import vqvae_file
from ibdrr_tf.codec_training import lossy
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.errors import UserError
from ibdrr_tf.learner import Learner

__all__ = ["Folders"]

_ALL = frozenset({"network", "memory"})


class _SharedGraphs:
  """Builds graphs of files that are whole once, and of others always.

  Building them takes seconds. What reads a file runs as it is.

  Args:
    root: a folder that has the files of a codec in `codec/`.

  Attributes:
    is_full: whether networks that come from now on are not kept.
  """

  def __init__(self, root):
    self.is_full = False
    self._root = root
    self._networks, self._keras_files = {}, {}
    self._vqvae, self._bit_swap = (
      (root / "codec" / name).read_bytes()
      for name in ("vqvae.ibvq", "bitswap.ibbs")
    )
    self._build, self._load = ClassifierFolder.build, lossy.load_vqvae
    self._plain, self._load_codes = classifier_folder.plain, BitSwapCodec.load
    replace = unittest.mock.patch.object
    self._patches = [
      replace(ClassifierFolder, "build", lambda *built: self.build(*built)),
      replace(classifier_folder, "plain", lambda network: _Copy(self, network)),
      replace(lossy, "load_vqvae", self.load_vqvae),
      replace(BitSwapCodec, "load", lambda *loaded: self.load_codes(*loaded)),
    ]
    for each in self._patches:
      each.start()

  def stop(self):
    for each in self._patches:
      each.stop()

  def build(self, folder, network, shape):
    key = json.dumps([network, shape, folder._config.to_json()])
    if key in self._networks:
      return self._networks[key]
    built = self._build(folder, network, shape)
    if not self.is_full:
      self._networks[key] = built
    return built

  def keras_file(self, network):
    """Keras takes a second to write the same file again."""
    key = sha(b"".join(w.tobytes() for w in network.get_weights()))
    if key not in self._keras_files:
      self._plain(network).save(self._root / "copy.keras")
      self._keras_files[key] = (self._root / "copy.keras").read_bytes()
    return self._keras_files[key]

  def load_vqvae(self, folder):
    path = pathlib.Path(folder) / "vqvae.ibvq"
    if path.is_file() and path.read_bytes() == self._vqvae:
      return self._whole_vqvae
    return self._load(folder)

  @functools.cached_property
  def _whole_vqvae(self):
    return vqvae_file.from_bytes(self._vqvae)

  def load_codes(self, codec, data):
    if data == self._bit_swap:
      return self._whole_codes
    return self._load_codes(codec, data)

  @functools.cached_property
  def _whole_codes(self):
    return self._load_codes(BitSwapCodec(), self._bit_swap)


class _Copy:
  """Stands for a network that is only made to be saved."""

  def __init__(self, shared, network):
    self._shared, self._network = shared, network

  def save(self, path):
    path.write_bytes(self._shared.keras_file(self._network))


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
    self.shared = _SharedGraphs(root)
    self.answers, self.passing = {}, {}
    for method in self.METHODS:
      folder = root / "whole" / method
      config = tiny_learner_config(codec, method)
      Learner(folder, config=config).learn((self.images, self.names))
      # A step that was killed before its commit has left its traces.
      with (
        unittest.mock.patch.object(open_state, "write_state", _die),
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
    self.shared.is_full = True

  def close(self):
    self.shared.stop()

  def whole_inputs(self):
    return [(method, "", b"", b"") for method in self.METHODS]

  def make(self, generator):
    """(method, file, its place or bytes, a manifest with its size)."""
    method = self.METHODS[generator.integers(0, len(self.METHODS))]
    folder = self.root / "whole" / method
    paths = _files(folder)
    path = paths[generator.integers(0, len(paths))]
    name, data = str(path.relative_to(folder)), path.read_bytes()
    kind = generator.integers(0, 8)
    if kind == 0:
      return method, name, PLACES[generator.integers(0, len(PLACES))], b""
    if kind < 4:
      return method, name, mutate(generator, data), b""
    if path.suffix == ".json" and path.parent.name != "classifier":
      return (
        method,
        name,
        sealed_json(mutate_json(generator, json.loads(data))),
        b"!",
      )
    if path.suffix in (".ibvq", ".ibbs", ".ibst"):
      return method, name, forged_model(generator, data), b"!"
    if path.suffix == ".npz":
      return method, name, forged_npz(generator, data), b"!"
    if path.suffix == ".tfrecord":
      data = self._forged_records(generator, path)
      manifest = json.loads((folder / "memory/manifest-000.json").read_bytes())
      for part in manifest["parts"].values():
        if path.name in part["files"]:
          part["files"][path.name] = len(data)
      return method, name, data, sealed_json(json.dumps(manifest).encode())
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
      put(folder / name, content)
    if len(manifest) > 1:
      (folder / "memory/manifest-000.json").write_bytes(manifest)
    self.settling = False
    try:
      parts = self._concerned(data)
      answer = self._use(folder, not is_forged, parts)
    finally:
      gone = self.passing[method] if self.settling else set()
      for path in _files(whole):
        short = path.relative_to(whole)
        if not is_forged and str(short) != name and short not in gone:
          if short.name in (".lock", ".published", "classifier.keras"):
            continue  # Written again.
          assert (folder / short).read_bytes() == path.read_bytes(), short
    if not is_forged:
      for part, values in answer.items():
        for one, other in zip(values, self.answers[method][part], strict=True):
          np.testing.assert_array_equal(one, other)

  def _concerned(self, data):
    """The parts of a state that might read a file; of some inputs, all parts.

    Graphs of the other parts take most of the time.
    """
    place = pathlib.PurePath(data[1]).parts[:1]
    parts = {
      ("checkpoints",): set(),
      ("classifier",): {"network"},
      ("codec",): {"memory"},
      ("memory",): {"memory"},
    }
    is_rare = zlib.crc32(repr(data).encode()) % 8 == 0
    return _ALL if is_rare else parts.get(place, _ALL)

  def _use(self, folder, settle, parts=_ALL):
    """What a user does; gives scores, and what memory remembers."""
    opened = Learner(folder)
    state = states.read_state(folder)
    if state is None:
      raise UserError(f"there is no state in {folder}.")
    learner_report.status(state, folder)
    json.dumps(learner_report.as_json(state))
    opened.ledger()
    known = {}
    if "network" in parts:
      known["network"] = [opened.predict(self.images[:3]).probabilities]
    if "memory" in parts:
      known["memory"] = self._remembered(opened)
    if settle:
      with opened._open.changing():
        self.settling = True
        opened._open.settle()
    return known

  def _remembered(self, opened):
    """Images, codes and labels, those of tests as well."""
    shape = opened.image_shape
    nothing = in_memory(np.zeros([0, *shape], np.uint8), np.zeros(0))
    count = len(opened.classes)
    task = Task(opened.step + 1, nothing, None, count, count)
    feed = opened.memory.examples(task)
    tests = opened.memory.held_out()
    kept = [feed.labels]
    if tests is not None:
      numbers = tf.range(len(tests), dtype=tf.int64)
      kept += [tests.labels, tests.read(numbers)]
    if hasattr(feed, "images"):
      kept.append(np.asarray(feed.images))
    if hasattr(opened.memory, "read"):
      codes = opened.memory.read()
      kept += [codes.top, codes.bottom]
    return kept


def _die(*_):
  raise KeyboardInterrupt


def _files(folder):
  return sorted(path for path in folder.rglob("*") if path.is_file())
