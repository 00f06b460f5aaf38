"""The bytes that a method keeps: every one of them, models included."""

import dataclasses

__all__ = ["FULL_SET", "PARTS", "Ledger", "bytes_per_image"]

# Models serve any number of images: besides what this run has, bytes an image
# are given as if they served as many as all of CIFAR-100's training set.
FULL_SET = 50_000

# The parts of a total, and how people call them.
PARTS = {
  "payload": "images",
  "index": "index",
  "raw_exemplars": "raw images",
  "codec_vqvae": "VQ-VAE",
  "codec_bitswap": "Bit-Swap model",
  "other_models": "old networks",
}


@dataclasses.dataclass(frozen=True)
class Ledger:
  """What is kept after a phase. All in bytes but `images` and `codes`.

  Each is the size of files, but for `upper_bound`, which keeps the data set and
  is charged with its pixels.

  There are three sums. `total` is what lies on the disk. Two others compare
  methods: `images_and_decoders` leaves out the network, and `next_phase` adds
  it for every method whose next step uses it, as a teacher or to start from, in
  the same 8-bit form for all.

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
    old_network: the part of `other_models` that is the network of the last
      step, as stored.
    old_network_8bit: its bytes in 8 bits; 0 if the next step does not use it.
  """

  payload: int = 0
  index: int = 0
  raw_exemplars: int = 0
  codec_vqvae: int = 0
  codec_bitswap: int = 0
  other_models: int = 0
  images: int = 0
  codes: int = 0
  old_network: int = 0
  old_network_8bit: int = 0

  @property
  def total(self) -> int:
    """All bytes together."""
    return sum(getattr(self, name) for name in PARTS)

  @property
  def images_and_decoders(self) -> int:
    """What is remembered of images, and what makes images of it."""
    return self.total - self.old_network

  @property
  def next_phase(self) -> int:
    """Everything that the next phase needs."""
    return self.images_and_decoders + self.old_network_8bit

  @property
  def bits_per_code(self) -> float | None:
    """Bits of payload for each code; None when there are no codes."""
    return 8 * self.payload / self.codes if self.codes else None

  def to_json(self) -> dict:
    """The entry `memory` of a phase in results.json."""
    fields = dataclasses.asdict(self)
    del fields["codes"], fields["old_network"]
    network = fields.pop("old_network_8bit")
    return {
      **fields,
      "total": self.total,
      "bits_per_code": self.bits_per_code,
      "old_network_8bit": network,
      "images_and_decoders": self.images_and_decoders,
      "next_phase": self.next_phase,
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
