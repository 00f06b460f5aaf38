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

import argparse
import collections
import inspect
import pathlib
import resource
import signal
import sys
import tempfile
import time

import numpy as np
from fuzz_codec import Archives, Chains, Commands, Models, Strings
from fuzz_folders import Folders
from fuzz_state import Checkpoints, Memories, States

from ibdrr_tf.errors import UserError

_SECONDS, _MEGABYTES = 1.0, 1000
_HANGS = 120  # seconds by the clock, on a machine that may be busy


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
      if not (number + 1) % 1000:
        print(f"{name}: {number + 1} inputs, {dict(told)}", file=sys.stderr)
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
