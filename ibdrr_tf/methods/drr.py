"""Discrete Representation Replay: every image is remembered, as a bit-string.

Section 4 of the paper. The codec's lossy stage is trained on the base classes
and frozen. In each phase the classifier is trained from scratch on
reconstructions of all images seen, and tested on raw images. Then the lossless
stage is fine-tuned on all codes, and all of them are written anew.
"""

from typing import Any

import numpy as np

from ibdrr_tf.classifiers import batch_norm
from ibdrr_tf.data import stream
from ibdrr_tf.methods.replaying import Replaying
from ibdrr_tf.replay import pipeline
from ibdrr_tf.replay.codec import ReplayCodec
from ibdrr_tf.replay.memory import CodeMemory, Codes

__all__ = ["DRR"]


class DRR(Replaying):
  """Trains on what the codec leaves of old and new classes.

  Args:
    *args: of `Method`.
    codec: the run's codec.
  """

  uses_codec = True

  def __init__(self, *args: Any, codec: ReplayCodec):
    super().__init__(*args)
    self._codec = codec
    self._memory = CodeMemory(
      self.workdir / "memory", codec.folder, codec.coder, self.team
    )
    self._seen: tuple[int, Codes] | None = None

  def examples(self, phase: int) -> pipeline.ReplayedExamples:
    """Reconstructions of old classes, from memory, and of new ones."""
    config = self.config.replay
    codes = self._codes(phase)
    return pipeline.ReplayedExamples(
      codes,
      self._codec.vqvae,
      self.source.train.image_shape[:2],
      cache=config.cache,
      twins=self.twins(phase, codes.labels),
      raw_share=config.raw_share,
    )

  def learn(self, phase: int) -> float:
    """Trains the classifier of a phase; returns the seconds it took."""
    seconds = super().learn(phase)
    self._adapt(phase)
    return seconds

  def restore(self, phase: int) -> float:
    """Takes up the classifier of a finished phase; returns its seconds."""
    seconds = super().restore(phase)
    self._adapt(phase)
    return seconds

  def remembers(self, phase: int) -> bool:
    """Whether memory holds the codes of a phase."""
    return self._memory.phase >= phase

  def keep(self, phase: int, order: np.ndarray) -> None:
    """Fine-tunes Bit-Swap on all codes and writes them anew."""
    codes = self._codes(phase)
    new = codes.labels >= self.scenario.new_labels(phase).start
    codes = Codes.join([codes.take(~new), codes.take(new).take(order)])
    model = self._codec.fit_bit_swap(
      codes, phase=phase, start=self._memory.model()
    )
    self._memory.replace(phase, codes, model)

  def stored_bytes(self, phase: int) -> dict[str, int]:
    """Bit-strings and both stages of the codec."""
    return {
      **self._memory.stored_bytes(),
      "codec_vqvae": self._codec.vqvae_bytes,
    }

  def predict(self, examples: stream.Examples) -> np.ndarray:
    """Names the class of each example, as `replay.test_view` looks at it."""
    view = self.config.replay.test_view
    if view == "raw":
      return super().predict(examples)
    coded = stream.Examples(
      examples.labels,
      lambda indices: self._codec.reconstruct(examples.read(indices)),
    )
    if view == "codec":
      return super().predict(coded)
    views = [self.probabilities(part) for part in (examples, coded)]
    return (views[0] + views[1]).argmax(axis=1)

  def _codes(self, phase: int) -> Codes:
    """Codes of all classes seen: the old ones as remembered, then the new."""
    if self._seen is None or self._seen[0] != phase:
      new = self._codec.encode(self.new_examples(phase))
      if phase:
        old = self._memory.read()
        # After a kill, memory may be ahead of what is being learned.
        first = self.scenario.new_labels(phase).start
        new = Codes.join([old.take(old.labels < first), new])
      self._seen = (phase, new)
    return self._seen[1]

  def _adapt(self, phase: int) -> None:
    """Shows batch normalisation the raw images that are at hand."""
    if self.config.replay.adapt_batch_norm:
      twins = self.raw_at_hand(phase, self._codes(phase).labels)
      batches = stream.ordered_batches(
        self.balanced(twins.raw), self.config.eval_batch_size
      )
      batch_norm.reestimate(self.classifier, batches)

  def balanced(self, raw: stream.Examples) -> stream.Examples:
    """As many of each class as of the rarest one, the first ones."""
    least = np.bincount(raw.labels)[np.unique(raw.labels)].min()
    chosen = [
      np.flatnonzero(raw.labels == label)[:least]
      for label in np.unique(raw.labels)
    ]
    return stream.take(raw, np.concatenate(chosen))
