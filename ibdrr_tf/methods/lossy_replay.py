"""Every image remembered as WebP or JPEG: what a user would do without us.

`memory.information_back` adds to them what IB-DRR* or IB-DRR adds to DRR.
"""

import functools

import numpy as np

from ibdrr_tf.data import stream
from ibdrr_tf.methods.ib_drr import InformationBack
from ibdrr_tf.methods.replaying import Replaying
from ibdrr_tf.replay import image_records, lossy_images, pipeline

__all__ = ["JPEGReplay", "WebPReplay"]

_BATCH = 500


class _LossyReplay(Replaying):
  """Trained from scratch on decoded images of all classes seen, as DRR is.

  New images too are seen as they will be remembered. All have one quality,
  `memory.quality`, or with `memory.total_bytes` the highest at which the files
  of all classes of the run fit. That looks at how large the files of later
  classes are, as whoever sets the quality of an archive has to guess.
  """

  kind = ""

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self._store = lossy_images.LossyStore(
      self.workdir / "memory", self.kind, self.scenario.boundaries
    )
    self._new: tuple[int, list[bytes]] | None = None

  def new_examples(self, phase: int) -> stream.Examples:
    """The raw training images of a phase's classes, class by class."""
    new = super().new_examples(phase)
    return stream.take(new, np.argsort(new.labels, kind="stable"))

  def examples(self, phase: int) -> pipeline.ReplayedImages:
    """Decoded images of all classes seen."""
    encoded, labels = self._store.read(phase - 1)
    labels = np.concatenate([labels, self.new_examples(phase).labels])
    return pipeline.ReplayedImages(
      lossy_images.decode(encoded + self._encoded(phase)),
      labels,
      twins=self.twins(phase, labels),
      raw_share=self.config.replay.raw_share,
    )

  def remembers(self, phase: int) -> bool:
    """Whether the file of a phase is there."""
    return self.team.is_there(self._store.path(phase))

  def keep(self, phase: int, order: np.ndarray) -> None:
    """Writes the file of a phase."""
    encoded = self._encoded(phase)
    labels = self.new_examples(phase).labels
    self.team.on_chief(
      lambda: self._store.write(
        phase, [encoded[i] for i in order], labels[order]
      )
    )

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """The images' own bytes, and those of the files that hold them."""
    payload, index, images = self._store.sizes(phase)
    return {"payload": payload, "index": index, "images": images}

  def _encoded(self, phase: int) -> list[bytes]:
    """The new images of a phase as files, in the order of `new_examples`."""
    if self._new is None or self._new[0] != phase:
      images, _ = self._read(phase)
      self._new = (
        phase,
        lossy_images.encode(images, self.kind, self._quality),
      )
    return self._new[1]

  @functools.cached_property
  def _quality(self) -> int:
    config = self.config.memory
    if not config.total_bytes:
      return config.quality
    phases = [self._read(phase) for phase in self.scenario.phases]
    raw_bytes = self.raw_bytes()

    def size_at(quality: int) -> int:
      parts = [self._file_bytes(*part, quality) for part in phases]
      return raw_bytes + sum(parts)

    return lossy_images.best_quality(size_at, config.total_bytes)

  def _file_bytes(
    self, images: np.ndarray, labels: np.ndarray, quality: int
  ) -> int:
    encoded = lossy_images.encode(images, self.kind, quality)
    sizes = np.array([len(data) for data in encoded])
    return image_records.file_bytes(
      {int(k): sizes[labels == k].tolist() for k in np.unique(labels)}
    )

  def _read(self, phase: int) -> tuple[np.ndarray, np.ndarray]:
    """All new raw images of a phase, uint8 [n, h, w, 3], and labels."""
    new = self.new_examples(phase)
    batches = stream.ordered_batches(new, _BATCH).as_numpy_iterator()
    return np.concatenate(list(batches)), new.labels


class WebPReplay(InformationBack, _LossyReplay):
  """Every image as lossy WebP."""

  kind = "webp"


class JPEGReplay(InformationBack, _LossyReplay):
  """Every image as JPEG."""

  kind = "jpeg"
