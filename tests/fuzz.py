"""Throws damaged and forged inputs at everything that reads files.

    python tests/fuzz.py archives|chains|models|memories|states|strings|all
      [--inputs=10000] [--seed=0] [--atheris]

Most inputs have right checksums, which anyone can compute. Whatever comes must
give one sentence or, where no checksum was computed anew, exactly what was
written. No input may take more than a second and a second a kilobyte of the
processor, or make the process grow by a gigabyte. With --atheris, and where it
is installed, its coverage guides the inputs of archives and states.
"""

import abc
import argparse
import collections
import contextlib
import hashlib
import json
import pathlib
import resource
import shutil
import struct
import sys
import tempfile
import time
import zlib

import numpy as np
import tensorflow as tf
from mutations import mutate, mutate_json
from tiny_codec import write_codec

from ibdrr_tf import state as states
from ibdrr_tf.codec import archive, commands, constant_weights
from ibdrr_tf.codec.image_codec import load_image_codec
from ibdrr_tf.codec.lossless import chain, static
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.code_store import CodeStore
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.manifest import MemoryFolder

_SECONDS, _MEGABYTES = 1.0, 1000


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
    packed = zlib.compress(text)
    data = struct.pack(
      *("<5sB8sII", b"IBDRR", 1, self.codec.fingerprint),
      *(len(packed), len(text)),
    )
    data += sha(data + packed) + packed + body
    return data + sha(data)

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


class Models(Target):
  def whole_inputs(self):
    folder = self.root / "codec"
    return [(name, (folder / name).read_bytes()) for name in OPENERS]

  def make(self, generator):
    name = list(OPENERS)[generator.integers(0, 3)]
    data = (self.root / "codec" / name).read_bytes()
    prefix, length = data[:6], struct.unpack_from("<I", data, 6)[0]
    header, packed = json.loads(data[10 : 10 + length]), data[10 + length : -8]
    text, kind = json.dumps(header).encode(), generator.integers(0, 4)
    if kind == 0:
      return name, mutate(generator, data)
    if kind == 1:
      text = mutate_json(generator, header)
    elif kind == 2:
      packed = mutate(generator, packed)
    else:
      packer = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
      body = mutate(generator, zlib.decompress(packed))
      packed = packer.compress(body) + packer.flush()
    data = prefix + struct.pack("<I", len(text)) + text + packed
    return name, data + sha(data)

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
  "chains": Chains,
  "models": Models,
  "memories": Memories,
  "states": States,
  "strings": Strings,
}


def _length(data):
  return len(data) if isinstance(data, bytes) else sum(map(len, data))


def run(name, inputs, seed=0):
  """Reads so many inputs; gives how many were refused, and the worst of all."""
  with tempfile.TemporaryDirectory() as folder:
    target = TARGETS[name](pathlib.Path(folder).resolve())
    generator = np.random.default_rng(seed)
    told, slowest = collections.Counter(), 0.0
    for data in target.whole_inputs():
      target.read(data)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(inputs):
      data = target.make(generator)
      began = time.process_time()
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
      seconds = time.process_time() - began
      slowest = max(slowest, seconds)
      most = _SECONDS * (1 + _length(data) / 1000)
      assert seconds < most, (name, number, seconds, repr(data)[:2000])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start
    grown /= 1e3
    assert grown < _MEGABYTES, (name, grown)
  return {**told, "slowest s": round(slowest, 2), "grown MB": round(grown)}


def _with_atheris(name, inputs):
  import atheris  # Only where it is installed.

  target = TARGETS[name](pathlib.Path(tempfile.mkdtemp()))

  def one(data):
    with contextlib.suppress(UserError):
      target.read(data)

  atheris.instrument_all()
  atheris.Setup([sys.argv[0], f"-runs={inputs}"], one)
  atheris.Fuzz()


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
