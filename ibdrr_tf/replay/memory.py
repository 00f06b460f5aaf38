"""Everything remembered of old classes: chains of codes in a TFRecord file.

    memory/manifest.json             names the file of chains and the model
    memory/chains-<phase>.tfrecord   one record a chain, with its labels
    codec/bitswap.ibbs               the model that reads them

After each phase all chains are written anew with a model that has been
fine-tuned. Chains and model change together: both are written beside the old
ones, then the manifest is replaced, which is the one step that counts. Whoever
opens a memory after a process was killed finds the old state or the new one,
whole. A team of workers shares one memory: each codes and decodes its part of
the chains, the chief writes.
"""

import dataclasses
import json
import os
import pathlib

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from ibdrr_tf import files
from ibdrr_tf.codec import bit_swap_file, model_file
from ibdrr_tf.codec.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.code_codec import CodeCodec
from ibdrr_tf.codec.planes import to_planes
from ibdrr_tf.distribution import ALONE, Team
from ibdrr_tf.errors import UserError

__all__ = ["CodeMemory", "Codes"]

_VERSION = 1
_MODEL, _NEXT_MODEL = "bitswap.ibbs", "bitswap.next.ibbs"
_REMEDY = "restore it from a copy, or start again in another --workdir"


@dataclasses.dataclass(frozen=True)
class Codes:
  """Labelled images as codes.

  Attributes:
    top: int16 [n, h, w, depth].
    bottom: int16 [n, 2h, 2w, depth].
    labels: int32 [n].
  """

  top: np.ndarray
  bottom: np.ndarray
  labels: np.ndarray

  def __len__(self) -> int:
    return len(self.labels)

  @property
  def count(self) -> int:
    """Number of codes, of both levels."""
    return self.top.size + self.bottom.size

  def planes(self) -> np.ndarray:
    """All of them on one grid, int32 [n, h, w, planes]; see `codec.planes`."""
    levels = (tf.constant(level, tf.int32) for level in (self.top, self.bottom))
    return to_planes(*levels).numpy()

  def take(self, chosen: np.ndarray) -> "Codes":
    """Some of them: by indices, or by a mask."""
    return Codes(self.top[chosen], self.bottom[chosen], self.labels[chosen])

  @staticmethod
  def join(parts: list["Codes"]) -> "Codes":
    """Several sets, one after the other."""
    return Codes(
      *(
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("top", "bottom", "labels")
      )
    )


class CodeMemory:
  """The chains of a run and the Bit-Swap model that they were written with.

  Args:
    directory: of the chains; need not exist yet.
    codec_directory: of the model. It may hold one from elsewhere before
      anything is remembered.
    coder: codes with whatever model it is given; by default one of its own.
    team: the workers that share it; all must call what reads or changes it.
  """

  def __init__(
    self,
    directory: str | pathlib.Path,
    codec_directory: str | pathlib.Path,
    coder: BitSwapCodec | None = None,
    team: Team = ALONE,
  ):
    self._directory = pathlib.Path(directory)
    self._model_path = pathlib.Path(codec_directory) / _MODEL
    self._next_path = pathlib.Path(codec_directory) / _NEXT_MODEL
    self._coder = coder or BitSwapCodec()
    self._team = team
    self._manifest = self._read_manifest()
    team.on_chief(self._finish_change)

  @property
  def phase(self) -> int:
    """The last phase that is remembered; -1 before the first."""
    return self._manifest["phase"] if self._manifest else -1

  def model(self) -> BitSwapModel | None:
    """The model of the chains, or the one to begin with; None without any."""
    if not self._model_path.is_file():
      return None
    return bit_swap_file.from_bytes(self._model_path.read_bytes())

  def read(self) -> Codes:
    """Decodes everything.

    Raises:
      UserError: naming the file, if anything is missing or damaged.
    """
    if self._manifest is None:
      raise UserError(
        f"the memory {self._directory} has no manifest.json: {_REMEDY}."
      )
    path = self._chains_path(self.phase)
    chains, labels = _read_records(path)
    try:
      top, bottom = self._decompress(self._codec(), chains)
    except UserError as error:
      raise UserError(f"in the memory file {path}, {error}") from error
    if (len(top), sum(map(len, chains))) != (
      self._manifest["images"],
      self._manifest["payload"],
    ) or len(top) != len(labels):
      raise UserError(
        f"the memory file {path} is not the one that its manifest describes: "
        f"{_REMEDY}."
      )
    return Codes(top.astype(np.int16), bottom.astype(np.int16), labels)

  def replace(self, phase: int, codes: Codes, model: BitSwapModel) -> None:
    """Remembers codes, and nothing else, from here on.

    What was written is decoded again and compared before it counts.

    Args:
      phase: that has been learned; later than that of the last change, whose
        file must not be touched before this change counts.
      codes: of all classes seen, in runs of one class.
      model: to write them with.
    """
    if phase <= self.phase:
      raise ValueError(f"phase {phase} is not after phase {self.phase}")
    data = bit_swap_file.to_bytes(model)
    codec = self._coder.load(data)
    chains = self._compress(codec, codes)
    path = self._chains_path(phase)

    def write_beside():
      images = codec.shapes(chains)[:, 0]
      _write_records(path, chains, images, codes.labels)
      files.write_bytes(self._next_path, data)

    self._team.on_chief(write_beside)
    self._verify(path, codec, codes)
    manifest = {
      "version": _VERSION,
      "phase": phase,
      "images": len(codes),
      "codes": codes.count,
      "payload": sum(map(len, chains)),
      "model": model_file.fingerprint(data).hex(),
    }
    self._manifest = manifest

    def change():
      files.write_json(self._directory / "manifest.json", manifest)
      self._finish_change()

    self._team.on_chief(change)

  def stored_bytes(self) -> dict[str, int]:
    """What it takes, by the ledger's names."""
    sizes = {
      path: path.stat().st_size
      for path in [
        self._directory / "manifest.json",
        self._chains_path(self.phase),
      ]
    }
    payload = self._manifest["payload"]
    return {
      "payload": payload,
      "index": sum(sizes.values()) - payload,
      "codec_bitswap": self._model_path.stat().st_size,
      "images": self._manifest["images"],
      "codes": self._manifest["codes"],
    }

  def _compress(self, codec: CodeCodec, codes: Codes) -> list[bytes]:
    """All codes to chains; each worker makes some of them."""
    mine = self._team.share(codec.chain_count(len(codes)))
    first, last = (n * codec.chain_images for n in (mine.start, mine.stop))
    chains = codec.compress(
      codes.top[first:last], codes.bottom[first:last], mine.start
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
    chains, labels = _read_records(path)
    top, bottom = self._decompress(codec, chains)
    for name, got in (("top", top), ("bottom", bottom), ("labels", labels)):
      if not np.array_equal(got, getattr(codes, name)):
        raise UserError(
          f"{path} does not give back the {name} that were written to it: the "
          f"disk or the memory of this machine is faulty."
        )

  def _codec(self) -> CodeCodec:
    if not self._model_path.is_file():
      raise UserError(f"the model {self._model_path} is missing: {_REMEDY}.")
    return self._coder.load(self._model_path.read_bytes())

  def _chains_path(self, phase: int) -> pathlib.Path:
    return self._directory / f"chains-{phase:03d}.tfrecord"

  def _read_manifest(self) -> dict | None:
    path = self._directory / "manifest.json"
    if not path.exists():
      return None
    try:
      manifest = json.loads(path.read_text(encoding="utf-8"))
      version = manifest["version"]
    except (ValueError, KeyError, TypeError) as error:
      raise UserError(f"{path} is damaged: {_REMEDY}.") from error
    if version > _VERSION:
      raise UserError(
        f"{path} was written by a newer version of ibdrr_tf: use that version."
      )
    return manifest

  def _finish_change(self) -> None:
    """Brings model and files in line with the manifest.

    The model waits beside the old one until the manifest names it; one that
    waits without being named belongs to a change that never happened. Without
    a manifest nothing is touched: it may have been lost, and chains with it.
    """
    if self._manifest is None:
      return
    if self._next_path.is_file():
      waiting = model_file.fingerprint(self._next_path.read_bytes()).hex()
      if waiting == self._manifest["model"]:
        os.replace(self._next_path, self._model_path)
      else:
        self._next_path.unlink()
    for path in self._directory.glob("chains-*.tfrecord"):
      if path != self._chains_path(self.phase):
        path.unlink()


def _write_records(
  path: pathlib.Path,
  chains: list[bytes],
  images: np.ndarray,
  labels: np.ndarray,
) -> None:
  """One record a chain; `images` says how many it holds."""
  start = 0
  with (
    files.replaced(path) as beside,
    tf.io.TFRecordWriter(str(beside)) as writer,
  ):
    for chain, count in zip(chains, images, strict=True):
      runs = _to_runs(labels[start : start + count])
      writer.write(_to_record(chain, *runs))
      start += count


def _to_runs(labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Labels as runs of equal ones: (label, length) of each."""
  starts = np.flatnonzero(np.diff(labels, prepend=labels[0] - 1))
  return labels[starts], np.diff(starts, append=len(labels))


def _to_record(chain: bytes, labels: np.ndarray, lengths: np.ndarray) -> bytes:
  feature = {
    "chain": tf.train.Feature(bytes_list=tf.train.BytesList(value=[chain])),
    "labels": tf.train.Feature(int64_list=tf.train.Int64List(value=labels)),
    "lengths": tf.train.Feature(int64_list=tf.train.Int64List(value=lengths)),
  }
  example = tf.train.Example(features=tf.train.Features(feature=feature))
  return example.SerializeToString()


def _read_records(path: pathlib.Path) -> tuple[list[bytes], np.ndarray]:
  """All chains of a file, and the labels of their images, int32 [n]."""
  chains, labels = [], []
  try:
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
      feature = tf.train.Example.FromString(record).features.feature
      chains.append(feature["chain"].bytes_list.value[0])
      runs = (feature[n].int64_list.value for n in ("labels", "lengths"))
      labels.append(np.repeat(*(np.array(run, np.int32) for run in runs)))
  except (tf.errors.OpError, DecodeError, OSError, IndexError) as error:
    raise UserError(
      f"the memory file {path} is missing or damaged: {_REMEDY}."
    ) from error
  return chains, np.concatenate(labels) if labels else np.zeros(0, np.int32)
