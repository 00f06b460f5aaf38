"""Codes on the disk: chains in TFRecord files, and the model that reads them.

    memory/codes-<step>.tfrecord   one record a chain, with its labels
    codec/bitswap.ibbs             the Bit-Swap model of all chains

A step appends a file of chains, written with the model that is there, or writes
all chains anew with a model that has been fine-tuned. A new model waits beside
the old one, as `bitswap.next.ibbs`, until the manifest that names it counts. A
team of workers shares one store: each worker codes and decodes its part of the
chains, the chief writes.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from ibdrr_tf import files
from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.codec.lossless.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay.code_blocks import CodeBlocks, parse_record
from ibdrr_tf.replay.codes import Codes
from ibdrr_tf.replay.manifest import REMEDY, MemoryFolder

__all__ = ["CodeStore"]

_MODEL, _NEXT_MODEL = "bitswap.ibbs", "bitswap.next.ibbs"
_SIDE_BY_SIDE = 16  # chains that are in RAM while all are written anew


class CodeStore:
  """The chains of a memory.

  Its part of the manifest: `files`, sizes by name in the order of the chains;
  `chains`, `images`, `codes` and `payload` of all of them; `model`, the
  fingerprint of the Bit-Swap model; `fitted`, the number of images when that
  model was last fitted.

  Args:
    folder: of the memory.
    models: folder of the Bit-Swap model. It may hold one from elsewhere before
      anything is remembered.
    coder: codes with whatever model it is given; by default one of its own.
  """

  PART = "codes"

  def __init__(
    self,
    folder: MemoryFolder,
    models: str | pathlib.Path,
    coder: BitSwapCodec | None = None,
  ):
    self._folder = folder
    self._team = folder.team
    self._models = pathlib.Path(models)
    self._coder = coder or BitSwapCodec()

  @property
  def contents(self) -> dict[str, Any]:
    """Its part of the manifest in force; zeros before anything is kept."""
    nothing = {"files": {}, "chains": 0, "images": 0, "codes": 0, "payload": 0}
    return self._folder.part(self.PART, {**nothing, "model": None, "fitted": 0})

  def model(self) -> BitSwapModel | None:
    """The model of the chains, or the one to begin with; None without any."""
    data = self._model_data()
    return None if data is None else bit_swap_file.from_bytes(data)

  def read(self) -> Codes:
    """Decodes everything.

    Raises:
      UserError: naming the file, if anything is missing or damaged.
    """
    contents = self.contents
    names = list(contents["files"])
    if not names:
      raise UserError(f"the memory {self._folder.path} holds no images yet.")
    paths = [self._folder.path / name for name in names]
    records = [_read_records(path) for path in paths]
    chains = [chain for part in records for chain in part[0]]
    labels, held_out = (
      np.concatenate([part[n] for part in records]) for n in (1, 2)
    )
    try:
      top, bottom = self._decompress(self._codec(), chains)
    except UserError as error:
      raise UserError(f"in the memory {self._folder.path}, {error}") from error
    counts = (len(labels), len(chains), sum(map(len, chains)))
    wanted = tuple(contents[name] for name in ("images", "chains", "payload"))
    if counts != wanted or len(top) != len(labels):
      raise UserError(
        f"the memory {self._folder.path} does not hold what its manifest "
        f"describes: {REMEDY}."
      )
    levels = (level.astype(np.int16) for level in (top, bottom))
    return Codes(*levels, labels, held_out)

  def blocks(self) -> CodeBlocks:
    """An index of all chains in force, which are not decoded.

    Raises:
      UserError: naming the file, if anything is missing or damaged.
    """
    contents = self.contents
    paths = [self._folder.path / name for name in contents["files"]]
    blocks = CodeBlocks(paths, self._codec())
    counts = (len(blocks.labels), len(blocks), blocks.payload)
    wanted = tuple(contents[name] for name in ("images", "chains", "payload"))
    if counts != wanted:
      raise UserError(
        f"the memory {self._folder.path} does not hold what its manifest "
        f"describes: {REMEDY}."
      )
    return blocks

  def append(self, step: int, codes: Codes) -> dict[str, Any]:
    """Writes more chains with the model that is there; the others stay.

    Returns:
      The part of the manifest with which they count.
    """
    data = self._model_data()
    if data is None:
      raise UserError(
        f"the codec {self._models} has no {_MODEL}: fit a model first."
      )
    return self._write(step, codes, data, self.contents)

  def replace(
    self, step: int, codes: Codes, model: BitSwapModel | None
  ) -> dict[str, Any]:
    """Writes all chains anew, in place of those that are there.

    Args:
      step: that writes them.
      codes: all that is to be remembered.
      model: to write them with, fitted to them; None takes the one there is.

    Returns:
      The part of the manifest with which they count.
    """
    before = self.contents
    if model is None:
      data, fitted = self._model_data(), before["fitted"]
    else:
      data, fitted = bit_swap_file.to_bytes(model), len(codes)
      path = self._models / _NEXT_MODEL
      self._team.on_chief(lambda: files.write_bytes(path, data))
    nothing = {"files": {}, "chains": 0, "images": 0, "codes": 0, "payload": 0}
    return self._write(step, codes, data, {**nothing, "fitted": fitted})

  def rewrite(self, step: int, parts: Iterable[Codes]) -> dict[str, Any]:
    """As `replace` with the model there is, from codes that come in parts.

    RAM holds the codes of a few chains at a time.

    Args:
      step: that writes them.
      parts: all that is to be remembered, in order.

    Returns:
      The part of the manifest with which they count.
    """
    codec, before = self._codec(), self.contents
    path = self._folder.new_file(self.PART, step, "tfrecord")
    sums = dict.fromkeys(("chains", "images", "codes", "payload"), 0)
    with contextlib.ExitStack() as stack:
      writer = None
      if self._team.is_chief:
        beside = stack.enter_context(files.replaced(path))
        writer = stack.enter_context(tf.io.TFRecordWriter(str(beside)))
      for codes in _regroup(parts, _SIDE_BY_SIDE * codec.chain_images):
        chains = self._compress(codec, codes, sums["chains"])
        top, bottom = self._decompress(codec, chains)
        _check_equal(path, codes, top=top, bottom=bottom)
        if writer:
          _write_chains(writer, chains, codec.shapes(chains)[:, 0], codes)
        sums["chains"] += len(chains)
        sums["images"] += len(codes)
        sums["codes"] += codes.count
        sums["payload"] += sum(map(len, chains))
    self._team.wait()
    CodeBlocks([path], codec)  # Reads the file back.
    size = path.stat().st_size
    kept = {name: before[name] for name in ("model", "fitted")}
    return {"files": {path.name: size}, **sums, **kept}

  def settle(self) -> None:
    """Puts the model of the manifest in force into its place."""
    self._team.on_chief(self._settle)

  def stored_bytes(self) -> dict[str, int]:
    """Bytes of chains and of the model, by the ledger's names."""
    contents = self.contents
    sizes = sum(contents["files"].values())
    return {
      "payload": contents["payload"],
      "index": sizes - contents["payload"],
      "codec_bitswap": len(self._model_data() or b""),
      "images": contents["images"],
      "codes": contents["codes"],
    }

  def _write(
    self, step: int, codes: Codes, data: bytes, before: dict[str, Any]
  ) -> dict[str, Any]:
    """Writes a file of chains, reads it back, and adds it to a part."""
    path = self._folder.new_file(self.PART, step, "tfrecord")
    codec = self._coder.load(data)
    chains = self._compress(codec, codes, before["chains"])
    images = codec.shapes(chains)[:, 0]
    self._team.on_chief(lambda: _write_records(path, chains, images, codes))
    self._verify(path, codec, codes)
    return {
      "files": {**before["files"], path.name: path.stat().st_size},
      "chains": before["chains"] + len(chains),
      "images": before["images"] + len(codes),
      "codes": before["codes"] + codes.count,
      "payload": before["payload"] + sum(map(len, chains)),
      "model": model_file.fingerprint(data).hex(),
      "fitted": before["fitted"],
    }

  def _compress(
    self, codec: CodeCodec, codes: Codes, first: int
  ) -> list[bytes]:
    """All codes to chains; each worker makes some of them."""
    mine = self._team.share(codec.chain_count(len(codes)))
    start, stop = (n * codec.chain_images for n in (mine.start, mine.stop))
    chains = codec.compress(
      codes.top[start:stop], codes.bottom[start:stop], first + mine.start
    )
    return self._team.gather_strings(chains)

  def _decompress(
    self, codec: CodeCodec, chains: list[bytes]
  ) -> tuple[np.ndarray, np.ndarray]:
    """Chains to codes of both levels; each worker decodes some of them."""
    mine = chains[self._team.share(len(chains))]
    # Without any chain there is no grid to tell.
    levels = codec.decompress(mine or chains[:1])
    levels = (level[: None if mine else 0] for level in levels)
    top, bottom = (self._team.gather(level) for level in levels)
    return top, bottom

  def _verify(self, path: pathlib.Path, codec: CodeCodec, codes: Codes) -> None:
    """Reads a file back; what differs must never replace what is there."""
    chains, labels, held_out = _read_records(path)
    top, bottom = self._decompress(codec, chains)
    _check_equal(
      path, codes, top=top, bottom=bottom, labels=labels, held_out=held_out
    )

  def _codec(self) -> CodeCodec:
    data = self._model_data()
    if data is None:
      path = self._models / _MODEL
      raise UserError(
        f"the model {path} that wrote the memory is missing: {REMEDY}."
      )
    return self._coder.load(data)

  def model_bytes(self, part: dict[str, Any]) -> int:
    """Size of the model of a part, whether it is in force yet or not."""
    return len(self._find_model(part["model"]) or b"")

  def _model_data(self) -> bytes | None:
    """The stored model in force, or the one to begin with."""
    return self._find_model(self.contents["model"])

  def _find_model(self, wanted: str | None) -> bytes | None:
    """The model of a fingerprint; it may still wait beside the old one."""
    for name in (_MODEL, _NEXT_MODEL):
      path = self._models / name
      if path.is_file():
        data = path.read_bytes()
        if wanted is None or model_file.fingerprint(data).hex() == wanted:
          return data
      if wanted is None:
        return None  # A model that waits belongs to a step that never counted.
    return None

  def _settle(self) -> None:
    waiting, wanted = self._models / _NEXT_MODEL, self.contents["model"]
    if not waiting.is_file():
      return
    if model_file.fingerprint(waiting.read_bytes()).hex() == wanted:
      os.replace(waiting, self._models / _MODEL)
    else:
      waiting.unlink()


def _write_records(
  path: pathlib.Path, chains: list[bytes], images: np.ndarray, codes: Codes
) -> None:
  """Writes a file; see `_write_chains`."""
  with (
    files.replaced(path) as beside,
    tf.io.TFRecordWriter(str(beside)) as writer,
  ):
    _write_chains(writer, chains, images, codes)


def _write_chains(
  writer: tf.io.TFRecordWriter,
  chains: list[bytes],
  images: np.ndarray,
  codes: Codes,
) -> None:
  """One record a chain; `images` says how many images it holds."""
  start = 0
  for chain, count in zip(chains, images, strict=True):
    part = slice(start, start + count)
    writer.write(_to_record(chain, codes.labels[part], codes.held_out[part]))
    start += count


def _check_equal(path: pathlib.Path, codes: Codes, **got: np.ndarray) -> None:
  """Refuses a file whose contents are not what was written to it."""
  for name, values in got.items():
    if not np.array_equal(values, getattr(codes, name)):
      raise UserError(
        f"{path} does not give back the {name} that were written to it: the "
        f"disk or the memory of this machine is faulty."
      )


def _regroup(parts: Iterable[Codes], size: int) -> Iterator[Codes]:
  """The same images in parts of `size`; the last part may be smaller."""
  pending: list[Codes] = []
  for part in parts:
    pending.append(part)
    while sum(map(len, pending)) >= size:
      joined = Codes.join(pending)
      yield joined.take(np.arange(size))
      pending = [joined.take(np.arange(size, len(joined)))]
  if any(map(len, pending)):
    yield Codes.join(pending)


def _to_record(chain: bytes, labels: np.ndarray, held_out: np.ndarray) -> bytes:
  """A chain with its labels and marks, as runs of equal ones."""
  keys = np.stack([labels, held_out.astype(labels.dtype)], axis=1)
  is_start = np.ones(len(keys), bool)
  is_start[1:] = np.any(keys[1:] != keys[:-1], axis=1)
  starts = np.flatnonzero(is_start)
  columns = {
    "labels": labels[starts],
    "lengths": np.diff(starts, append=len(labels)),
  }
  if held_out.any():
    columns["held_out"] = held_out[starts]
  feature = {
    "chain": tf.train.Feature(bytes_list=tf.train.BytesList(value=[chain])),
    **{
      name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
      for name, values in columns.items()
    },
  }
  example = tf.train.Example(features=tf.train.Features(feature=feature))
  return example.SerializeToString()


def _read_records(
  path: pathlib.Path,
) -> tuple[list[bytes], np.ndarray, np.ndarray]:
  """Chains of a file; labels, int32 [n], and marks, bool [n], of images."""
  chains, labels, held_out = [], [np.zeros(0, np.int32)], [np.zeros(0, bool)]
  try:
    if not path.is_file():
      raise OSError("a pipe would block")
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      chain, of_images, marks = parse_record(record)
      chains.append(chain)
      labels.append(of_images)
      held_out.append(marks)
  except (
    tf.errors.OpError,
    DecodeError,
    OSError,
    IndexError,
    ValueError,
  ) as error:
    raise UserError(
      f"the memory file {path} is missing or damaged: {REMEDY}."
    ) from error
  return chains, np.concatenate(labels), np.concatenate(held_out)
