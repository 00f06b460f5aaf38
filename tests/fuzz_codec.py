"""Targets of `fuzz`: what a codec reads."""

import contextlib
import io
import json
import shutil
import struct
import unittest.mock
import zlib

import numpy as np
import tensorflow as tf
from fuzz_target import Target
from mutations import forged_model, mutate, mutate_json, sha
from PIL import Image

from ibdrr_tf.codec import __main__ as codec_command
from ibdrr_tf.codec import archive, commands, constant_weights, model_file
from ibdrr_tf.codec.lossless import bit_swap_file, chain, static
from ibdrr_tf.codec.lossy import vqvae_file

__all__ = ["Archives", "Chains", "Commands", "Models", "Strings"]


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


class Models(Target):
  def whole_inputs(self):
    folder = self.root / "codec"
    return [(name, (folder / name).read_bytes()) for name in OPENERS]

  def make(self, generator):
    name = list(OPENERS)[generator.integers(0, 3)]
    data = (self.root / "codec" / name).read_bytes()
    return name, forged_model(generator, data)

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
