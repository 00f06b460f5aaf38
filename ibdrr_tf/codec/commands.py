"""What the codec's commands do with files: compress, decompress, info, export.

TensorFlow is imported only once the arguments have been found good.
"""

from __future__ import annotations

import io
import pathlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from ibdrr_tf import command_line, files
from ibdrr_tf.codec import archive as archives
from ibdrr_tf.codec import pretrained
from ibdrr_tf.data.image_files import BrokenImages
from ibdrr_tf.data.images import Pile, open_images
from ibdrr_tf.errors import UserError

__all__ = [
  "compress",
  "decoded_images",
  "decompress",
  "export",
  "info",
  "open_groups",
]

# Images that are read and encoded together have so many pixels at most.
_BATCH_PIXELS = 1 << 20
_STREAM = "-"


def compress(
  source: str,
  output: str,
  codec: str,
  force: bool,
  skip_broken: bool = False,
  check: bool = False,
) -> None:
  """Compresses images to an archive.

  Args:
    source: an image file, a folder, a `.npy` array, or "-".
    output: the archive, or "-".
    codec: name or folder.
    force: whether an existing file may be replaced.
    skip_broken: whether to leave out files that cannot be decoded.
    check: whether to decode the archive again before it is written, and to
      tell its PSNR.
  """
  started = time.monotonic()
  _refuse_to_overwrite(output, force)
  folder = pretrained.folder_of(codec)
  pile = _open_pile(source, skip_broken)
  archives.check_index(pile.sizes, pile.names)
  coder = _load(folder)
  groups = archives.group_by_grid(pile.sizes)
  chains = []
  with _progress(len(pile.sizes), "compress") as bar:
    for group in groups:
      codes = [
        coder.encode(_padded(pile, batch, group.grid, bar))
        for batch in _batches(group)
      ]
      top, bottom = (
        np.concatenate(level) for level in zip(*codes, strict=True)
      )
      chains.append(tuple(coder.codes.compress(top, bottom)))
  archive = archives.Archive(
    coder.fingerprint, coder.depths, pile.sizes, pile.names, tuple(chains)
  )
  data = archives.pack(archive)
  quality = ""
  if check:
    opened = open_groups(archives.unpack(data, output), coder, output)
    quality = f", PSNR {_mean_psnr(pile, archive, opened, coder)}"
  _write(output, data)
  # Standard output may be the archive.
  print(
    f"{_title(output, 'standard output')}: {len(pile.sizes)} images, "
    f"{len(data)} bytes, {8 * len(data) / archive.pixels:.4f} bits per pixel"
    f"{quality}, {time.monotonic() - started:.1f} s",
    file=sys.stderr if output == _STREAM else sys.stdout,
  )


def decompress(
  source: str,
  output: str,
  codec: str,
  force: bool,
  codes: bool,
  max_pixels: int | None = None,
) -> None:
  """Makes images, or codes, of an archive.

  Args:
    source: the archive, or "-".
    output: a folder for PNG files, a `.png` file for one image, a `.npy` file,
      or "-" for an array; with `codes`, an `.npz` file or "-".
    codec: name or folder; it must be the one that compressed.
    force: whether existing files may be replaced.
    codes: whether to write codes.
    max_pixels: of the images of one chain that has few bytes; None is the
      default of `CodeCodec`.
  """
  suffix = pathlib.PurePath(output).suffix
  if codes and output != _STREAM and suffix != ".npz":
    raise UserError(f"codes are written as .npz: give -o X.npz, not {output}.")
  to_image = suffix == ".png" and not pathlib.Path(output).is_dir()
  to_folder = not (codes or to_image or output == _STREAM or suffix == ".npy")
  if not to_folder:
    _refuse_to_overwrite(output, force)
  folder = pretrained.folder_of(codec)
  archive = archives.unpack(_read(source), _title(source))
  if to_image and len(archive.sizes) > 1:
    raise UserError(
      f"{_title(source)} holds {len(archive.sizes)} images, which no .png file "
      f"can hold: give a folder, -o DIR."
    )
  if not to_folder and not codes and len(set(archive.sizes)) > 1:
    raise UserError(
      f"the images of {_title(source)} have different sizes, which no array "
      f"can hold: give a folder, -o DIR."
    )
  if to_folder:
    _say_new_parents(output)
    names = _png_names(archive)
    _refuse_folder(pathlib.Path(output), names, force)
  coder = _load(folder, max_pixels)
  opened = open_groups(archive, coder, source)
  if codes:
    _write_codes(output, _codes_by_key(archive, opened, coder))
    return
  pairs = decoded_images(archive, opened, coder)
  if to_folder or to_image:
    for number, image in pairs:
      path = pathlib.Path(output) / names[number] if to_folder else output
      buffer = io.BytesIO()
      Image.fromarray(image).save(buffer, "PNG")
      _write(str(path), buffer.getvalue())
    return
  array = np.empty((len(archive.sizes), *archive.sizes[0], 3), np.uint8)
  for number, image in pairs:
    array[number] = image
  _write_array(output, array)


def info(
  source: str, originals: str, codec: str, max_pixels: int | None = None
) -> None:
  """Prints what an archive holds and costs, and its PSNR if asked for.

  Args:
    source: the archive, or "-".
    originals: what was compressed, or "".
    codec: name or folder; needed for the PSNR only.
    max_pixels: as for `decompress`.
  """
  data = _read(source)
  archive = archives.unpack(data, _title(source))
  pile = None
  if originals:
    folder = pretrained.folder_of(codec)
    pile = open_images(originals, sys.stdin.buffer)
    if pile.sizes != archive.sizes:
      raise UserError(
        f"{originals} does not hold the originals of {_title(source)}: number "
        f"or sizes of the images differ."
      )
  sizes = list(dict.fromkeys(archive.sizes))
  shown = ", ".join(f"{height}x{width}" for height, width in sizes[:4])
  more = f" and {len(sizes) - 4} more" if len(sizes) > 4 else ""
  payload = sum(len(c) for chains in archive.chains for c in chains)
  count = sum(len(chains) for chains in archive.chains)
  rows = {
    "images": f"{len(archive.sizes)}",
    "sizes": f"{shown}{more}",
    "bytes": f"{len(data)}, {payload} of them in {count} chains",
    "codes": f"{archive.codes}",
    "bits per code": f"{8 * len(data) / archive.codes:.3f}",
    "bits per pixel": f"{8 * len(data) / archive.pixels:.4f}",
    "VQ-VAE": archive.fingerprint.hex(),
  }
  if pile is not None:
    coder = _load(folder, max_pixels)
    opened = open_groups(archive, coder, source)
    rows["PSNR"] = _mean_psnr(pile, archive, opened, coder)
  for name, value in rows.items():
    print(f"{name:<16}{value}")


def export(output: str, codec: str, force: bool) -> None:
  """Writes a codec as a SavedModel.

  Args:
    output: the folder to make.
    codec: name or folder.
    force: whether an older export may be replaced.
  """
  path = pathlib.Path(output)
  is_export = (path / "saved_model.pb").is_file()
  is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
  if not is_free and not (is_export and force):
    hint = "--force replaces it" if is_export else "choose another"
    raise UserError(f"{output} is already there: {hint}.")
  folder = pretrained.folder_of(codec)
  _say_new_parents(output)
  files.beside(path)  # Refuses a wrong place before TensorFlow is loaded.
  command_line.say_starting(result_on_stdout=True)
  from ibdrr_tf.codec import image_codec
  from ibdrr_tf.codec.lossless import range_coder

  image_codec.export(image_codec.load_image_codec(folder), path)
  size = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
  print(
    f"{path}: {size / 1e6:.3f} MB; import {range_coder.OPS} before "
    f"tf.saved_model.load"
  )


def _open_pile(source: str, skip_broken: bool) -> Pile:
  try:
    return open_images(source, sys.stdin.buffer, skip_broken=skip_broken)
  except BrokenImages as error:
    raise UserError(f"{error} --skip_broken leaves them out.") from error


def _load(folder: pathlib.Path, max_pixels: int | None = None) -> Any:
  command_line.say_starting(result_on_stdout=True)
  from ibdrr_tf.codec import image_codec

  options = {} if max_pixels is None else {"most_places": max_pixels // 64}
  return image_codec.load_image_codec(folder, **options)


def _batches(group: archives.Group) -> Iterator[tuple[int, ...]]:
  """Divides the images of a group so that each part fits into memory."""
  places = group.grid[0] * group.grid[1]
  size = max(1, _BATCH_PIXELS // (64 * places))
  for start in range(0, len(group.members), size):
    yield group.members[start : start + size]


def _padded(
  pile: Pile, members: Iterable[int], grid: tuple[int, int], bar
) -> np.ndarray:
  """Reads images of one grid, filled up at their ends: uint8 [n, h, w, 3]."""
  height, width = 8 * grid[0], 8 * grid[1]
  result = []
  for number in members:
    image = pile.read(number)
    missing = (height - image.shape[0], width - image.shape[1])
    pad = [(0, missing[0]), (0, missing[1]), (0, 0)]
    result.append(np.pad(image, pad, mode="edge"))
    bar.update()
  return np.stack(result)


def open_groups(
  archive: archives.Archive, coder: Any, source: str
) -> list[tuple[archives.Group, tuple[bytes, ...]]]:
  """Checks that an archive is this codec's and holds what it says."""
  if archive.fingerprint != coder.fingerprint or archive.depths != coder.depths:
    raise UserError(
      f"{_title(source)} was written with another codec (VQ-VAE "
      f"{archive.fingerprint.hex()}): give that one by --codec=NAME|DIR."
    )
  opened = list(
    zip(archives.group_by_grid(archive.sizes), archive.chains, strict=True)
  )
  for group, chains in opened:
    places = group.grid[0] * group.grid[1] * len(group.members)
    size = sum(map(len, chains))
    if (
      64 * places > coder.codes.most_pixels * len(chains)
      and archive.codes_of(places) > 8 * size
    ):
      raise UserError(
        f"{_title(source)} declares {64 * places} pixels in {size} bytes: if "
        f"you trust its origin, give --max_pixels={64 * places}."
      )
    shapes = coder.codes.shapes(list(chains))
    right = (shapes[:, 1:] == group.grid).all()
    if not right or shapes[:, 0].sum() != len(group.members):
      raise UserError(
        f"{_title(source)} is damaged: its chains hold other images than its "
        f"index says; restore it from a copy."
      )
  return opened


def decoded_images(
  archive: archives.Archive,
  opened: list[tuple[archives.Group, tuple[bytes, ...]]],
  coder: Any,
) -> Iterator[tuple[int, np.ndarray]]:
  """Gives each image's number and pixels, uint8 [h, w, 3], chain by chain."""
  with _progress(len(archive.sizes), "decompress") as bar:
    for group, chains in opened:
      done = 0
      for chain in chains:
        top, bottom = coder.codes.decompress([chain])
        members = group.members[done : done + len(top)]
        done += len(top)
        part = archives.Group(group.grid, tuple(range(len(top))))
        for batch in _batches(part):
          rows = slice(batch[0], batch[-1] + 1)
          decoded = coder.decode(top[rows], bottom[rows]).numpy()
          for place, image in zip(batch, decoded, strict=True):
            height, width = archive.sizes[members[place]]
            yield members[place], image[:height, :width]
            bar.update()


def _codes_by_key(
  archive: archives.Archive,
  opened: list[tuple[archives.Group, tuple[bytes, ...]]],
  coder: Any,
) -> dict[str, np.ndarray]:
  """All codes as arrays with names, without decoding any image."""
  levels = ("top", "bottom")
  arrays: dict[str, np.ndarray] = {}
  with _progress(len(archive.sizes), "decompress") as bar:
    for group, chains in opened:
      codes = coder.codes.decompress(list(chains))
      bar.update(len(group.members))
      if len(set(archive.sizes)) == 1:
        return dict(zip(levels, codes, strict=True))
      for place, number in enumerate(group.members):
        for level, values in zip(levels, codes, strict=True):
          arrays[f"{level}_{number:05d}"] = values[place]
  return arrays


def _png_names(archive: archives.Archive) -> list[str]:
  """A PNG file for each image; its own name, with another suffix."""
  if archive.names is None:
    return [f"{number:05d}.png" for number in range(len(archive.sizes))]
  short = [
    str(pathlib.PurePosixPath(name).with_suffix(".png"))
    for name in archive.names
  ]
  if len(set(short)) == len(short):
    return short
  # a.jpg and a.png lay side by side.
  return [f"{name}.png" for name in archive.names]


def _psnr(original: np.ndarray, decoded: np.ndarray) -> float:
  """10·log10(255² / MSE) of one image, at most 100 dB."""
  error = original.astype(np.float64) - decoded
  return float(10 * np.log10(255.0**2 / max(np.mean(error**2), 255e-10 * 255)))


def _mean_psnr(
  pile: Pile, archive: archives.Archive, opened: list, coder: Any
) -> str:
  """How well an archive gives back its originals, in words."""
  values = [
    _psnr(pile.read(number), image)
    for number, image in decoded_images(archive, opened, coder)
  ]
  return f"{np.mean(values):.2f} dB, the mean over images"


def _progress(total: int, title: str) -> tqdm:
  return tqdm(total=total, desc=title, unit="image", disable=None)


def _title(path: str, stream: str = "standard input") -> str:
  return stream if path == _STREAM else path


def _read(path: str) -> bytes:
  if path == _STREAM:
    return sys.stdin.buffer.read()
  try:
    return pathlib.Path(path).read_bytes()
  except OSError as error:
    raise UserError(
      f"{path} cannot be read ({error.strerror}): give a file that compress "
      f"has written."
    ) from error


def _refuse_to_overwrite(output: str, force: bool) -> None:
  path = pathlib.Path(output)
  if output == _STREAM:
    return
  if path.is_dir():
    raise UserError(f"{output} is a folder: give the name of a file.")
  if path.exists() and not force:
    raise UserError(f"{output} is already there: --force replaces it.")
  _say_new_parents(output)


def _say_new_parents(output: str) -> None:
  """Tells of folders that will be made for an output: a slip, maybe."""
  parent = pathlib.Path(output).parent
  if not parent.exists():
    print(f"ibdrr_tf: {parent} is made, as it is not there", file=sys.stderr)


def _refuse_folder(folder: pathlib.Path, names: list[str], force: bool) -> None:
  if folder.exists() and not folder.is_dir():
    raise UserError(f"{folder} is a file: give a folder, or a .npy file.")
  for name in names:
    if (folder / name).exists() and not force:
      raise UserError(f"{folder / name} is already there: --force replaces it.")


def _write(output: str, data: bytes) -> None:
  try:
    if output == _STREAM:
      sys.stdout.buffer.write(data)
      sys.stdout.buffer.flush()
      return
    with files.replaced(output) as beside:
      beside.write_bytes(data)
  except OSError as error:
    raise UserError(
      f"{_title(output, 'standard output')} cannot be written "
      f"({error.strerror}): make room, or choose another by -o."
    ) from error


def _write_array(output: str, array: np.ndarray) -> None:
  buffer = io.BytesIO()
  np.save(buffer, array, allow_pickle=False)
  _write(output, buffer.getvalue())


def _write_codes(output: str, arrays: dict[str, np.ndarray]) -> None:
  buffer = io.BytesIO()
  np.savez_compressed(buffer, **arrays)
  _write(output, buffer.getvalue())
