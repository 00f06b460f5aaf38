"""Every image remembered as WebP or JPEG: what a user would do without us."""

import functools

import numpy as np

from ibdrr_tf.data import source, stream
from ibdrr_tf.methods.base import Method
from ibdrr_tf.replay import image_records, lossy_images

__all__ = ["JPEGReplay", "WebPReplay"]

_BATCH = 500


class _LossyReplay(Method):
  """Trained from scratch on decoded images of all classes seen, as DRR is.

  New images too are seen as they will be remembered. All have one quality,
  `memory.quality`, or with `memory.total_bytes` the highest at which the files
  of all classes of the run fit. That looks at how large the files of later
  classes are, as whoever sets the quality of an archive has to guess.
  """

  kind = ""

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    self._store = lossy_images.LossyStore(self.workdir / "memory", self.kind)

  def examples(self, phase: int) -> stream.Examples:
    """Decoded images of all classes seen."""
    if not self.team.is_there(self._store.path(phase)):
      images, labels = self._read(phase)
      self.team.on_chief(
        lambda: self._store.write(phase, images, labels, self._quality)
      )
    split = source.in_memory(*self._store.read(phase))
    return stream.Examples(split.labels, split.read)

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """The images' own bytes, and those of the files that hold them."""
    payload, index, images = self._store.sizes(phase)
    return {"payload": payload, "index": index, "images": images}

  @functools.cached_property
  def _quality(self) -> int:
    config = self.config.memory
    if not config.total_bytes:
      return config.quality
    phases = [self._read(phase) for phase in self.scenario.phases]

    def size_at(quality: int) -> int:
      return sum(self._file_bytes(*part, quality) for part in phases)

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


class WebPReplay(_LossyReplay):
  """Every image as lossy WebP."""

  kind = "webp"


class JPEGReplay(_LossyReplay):
  """Every image as JPEG."""

  kind = "jpeg"
