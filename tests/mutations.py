"""Changes of bytes and of JSON values, for tests that damage files."""

import copy
import hashlib
import io
import json
import os
import struct
import zlib

import numpy as np


def mutate(generator, data):
  """Changes, cuts, repeats, swaps or replaces bytes."""
  data = bytearray(data)
  kind = generator.integers(0, 6)
  first, last = sorted(generator.integers(0, len(data) + 1, 2))
  if kind == 0 and data:
    for place in generator.integers(0, len(data), generator.integers(1, 5)):
      data[place] ^= int(generator.integers(1, 256))
  elif kind == 1:
    del data[first:last]
  elif kind == 2:
    data[first:first] = data[first:last]
  elif kind == 3:
    data[first:last] = generator.bytes(int(last - first))
  elif kind == 4:
    data[first:last] = bytes(int(last - first))
  else:
    start = bytes(data[: generator.integers(0, 7)])
    data = bytearray(start + generator.bytes(int(generator.integers(0, 300))))
  return bytes(data)


STRANGE = [
  *(None, True, 0, 1, -1, 2, 3, 255, 1 << 16, 1 << 26, 1 << 31, 1 << 32),
  *(1 << 40, 1 << 63, 10**30, 1.5, -0.0, 1e308, float("nan"), "", "x", "../x"),
  *("a/" * 3000, "\udcff", [], [[]], [0], [1] * 1000, {}, {"x": 1}, "\0"),
]


def mutate_json(generator, value):
  """Replaces, removes or doubles one value at any depth; gives text."""
  value = copy.deepcopy(value)
  place = value
  while True:
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not keys:
      break
    key = keys[generator.integers(0, len(keys))]
    inner = place[key]
    if isinstance(inner, (dict, list)) and inner and generator.integers(0, 3):
      place = inner
      continue
    kind = generator.integers(0, 4)
    if kind == 0:
      del place[key]
    elif kind == 1 and isinstance(place, list):
      place.insert(int(key), inner)
    else:
      place[key] = STRANGE[generator.integers(0, len(STRANGE))]
    break
  return json.dumps(value).encode("utf-8", "surrogatepass")


def sha(data):
  return hashlib.sha256(data).digest()[:8]


def sealed_json(text):
  """JSON with its checksum computed anew, as manifests and states have it."""
  try:
    body = json.loads(text)
    body.pop("checksum", None)
  except (ValueError, AttributeError, RecursionError, TypeError):
    return text
  plain = json.dumps(body, sort_keys=True, separators=(",", ":"))
  body["checksum"] = hashlib.sha256(plain.encode()).hexdigest()[:16]
  return json.dumps(body).encode()


def forged_model(generator, data):
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


def forged_npz(generator, data):
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


# What stands in the place of a file.
PLACES = ("missing", "empty", "folder", "fifo", "loop", "dangling", "mode")


def put(path, content):
  """Puts bytes, or what one of `PLACES` names, where a file was."""
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
