"""Changes of bytes and of JSON values, for tests that damage files."""

import copy
import json


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
