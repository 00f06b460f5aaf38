"""The bytes that a method keeps: every one of them, models included."""

import dataclasses

__all__ = ["FULL_SET", "Ledger", "bytes_per_image"]

# Models serve any number of images: besides what this run has, bytes an image
# are given as if they served as many as all of CIFAR-100's training set.
FULL_SET = 50_000


@dataclasses.dataclass(frozen=True)
class Ledger:
  """What is kept after a phase. All in bytes but the last two.

  Each is the size of files, but for `upper_bound`, which keeps the data set and
  is charged with its pixels.

  Attributes:
    payload: the bit-strings' chains, headers and initial bits included; the
      encoded images themselves where images are kept as WebP or JPEG.
    index: everything else in `memory/` but the exemplars.
    raw_exemplars: raw images, losslessly compressed; `upper_bound`'s are not.
    codec_vqvae: the stored VQ-VAE.
    codec_bitswap: the stored Bit-Swap model.
    other_models: generators and kept copies of old networks.
    images: number of images that can be replayed.
    codes: number of codes in the payload.
  """

  payload: int = 0
  index: int = 0
  raw_exemplars: int = 0
  codec_vqvae: int = 0
  codec_bitswap: int = 0
  other_models: int = 0
  images: int = 0
  codes: int = 0

  @property
  def total(self) -> int:
    """All bytes together."""
    return (
      self.payload
      + self.index
      + self.raw_exemplars
      + self.codec_vqvae
      + self.codec_bitswap
      + self.other_models
    )

  @property
  def bits_per_code(self) -> float | None:
    """Bits of payload for each code; None when there are no codes."""
    return 8 * self.payload / self.codes if self.codes else None

  def to_json(self) -> dict:
    """The entry `memory` of a phase in results.json."""
    fields = dataclasses.asdict(self)
    del fields["codes"]
    return {
      **fields,
      "total": self.total,
      "bits_per_code": self.bits_per_code,
    }


def bytes_per_image(memory: dict) -> tuple[float, float] | None:
  """Bytes kept for each image, two ways.

  Args:
    memory: a ledger as `Ledger.to_json` gives it.

  Returns:
    As stored, and with the models spread over `FULL_SET` images; None if no
    image can be replayed.
  """
  images = memory["images"]
  if not images:
    return None
  names = ("codec_vqvae", "codec_bitswap", "other_models")
  models = sum(memory[name] for name in names)
  spread = (memory["total"] - models) / images + models / FULL_SET
  return memory["total"] / images, spread
