"""The bytes that a method keeps: every one of them, models included."""

import dataclasses

__all__ = ["Ledger"]


@dataclasses.dataclass(frozen=True)
class Ledger:
  """What lies on the disk after a phase. All in bytes but the last three.

  Attributes:
    payload: the bit-strings' chains, headers and initial bits included; the
      encoded images themselves where images are kept as WebP or JPEG.
    index: everything else in `memory/` but the exemplars.
    raw_exemplars: raw images, losslessly compressed.
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
