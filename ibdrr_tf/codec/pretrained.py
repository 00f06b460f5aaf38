"""Where codecs are: those of the package by name, others by their folder."""

import pathlib

from ibdrr_tf.errors import UserError

__all__ = [
  "BITSWAP_FILE",
  "DEFAULT",
  "STATIC_FILE",
  "VQVAE_FILE",
  "check_folder",
  "folder_of",
  "names",
]

# What a codec folder holds: both stages, and tables for chains of few images.
VQVAE_FILE = "vqvae.ibvq"
BITSWAP_FILE = "bitswap.ibbs"
STATIC_FILE = "static.ibst"

DEFAULT = "cifar100"
_ROOT = pathlib.Path(__file__).parent / "pretrained"


def names() -> list[str]:
  """The codecs that come with the package."""
  return sorted(path.name for path in _ROOT.iterdir() if path.is_dir())


def folder_of(
  codec: str, needed: tuple[str, ...] = (VQVAE_FILE, BITSWAP_FILE)
) -> pathlib.Path:
  """Finds a codec's folder.

  Args:
    codec: the name of a codec that comes with the package, or a folder that
      `python -m ibdrr_tf.codec train` has filled. Names win; `./cifar100` is a
      folder.
    needed: the files that must be in it.

  Raises:
    UserError: if there is no such codec.
  """
  known = names()
  if codec in known:
    return _ROOT / codec
  folder = pathlib.Path(codec)
  if not folder.is_dir():
    raise UserError(
      f"there is no codec {codec!r}: give {', '.join(known)}, or a folder that "
      f"`python -m ibdrr_tf.codec train` has filled."
    )
  check_folder(folder, needed)
  return folder


def check_folder(
  folder: pathlib.Path, needed: tuple[str, ...] = (VQVAE_FILE, BITSWAP_FILE)
) -> None:
  """Refuses a folder that lacks a file, as a rule one of the two stages."""
  for name in needed:
    if not (folder / name).is_file():
      raise UserError(
        f"the codec folder {folder} has no {name}: give one that "
        f"`python -m ibdrr_tf.codec train` has filled."
      )
