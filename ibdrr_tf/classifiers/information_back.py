"""Information Back: features of a reconstruction are pulled to its original's.

Section 5 of the paper. Beside the cross-entropy on reconstructions,

  L = CE(f(x'), y) + lambda * L_sim,   L_sim = - sg[r1 / |r1|] . r2 / |r2|,

where r1 are the features of a raw image x, r2 those of its reconstruction x'
under the same augmentation, and sg stops the gradient. L_sim is the mean over
those examples of a batch whose raw image is at hand, and 0 without any.
"""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ibdrr_tf.classifiers import batch_norm, losses
from ibdrr_tf.classifiers.classifier import Classifier

__all__ = [
  "ReplayClassifier",
  "similarity_loss",
]


def similarity_loss(raw: tf.Tensor, replayed: tf.Tensor) -> tf.Tensor:
  """L_sim of each pair: minus the cosine; no gradient reaches `raw`.

  Args:
    raw: r1, float32 [m, …].
    replayed: r2, of the same shape.

  Returns:
    float32 [m].
  """
  pairs = [
    # The ends of stages may be float16, in which squares overflow.
    tf.math.l2_normalize(
      tf.reshape(tf.cast(r, tf.float32), [tf.shape(r)[0], -1]), axis=1
    )
    for r in (tf.stop_gradient(raw), replayed)
  ]
  return -tf.reduce_sum(pairs[0] * pairs[1], axis=1)


class ReplayClassifier(Classifier):
  """A classifier that is trained on what `prepare` makes of a batch.

  `predict` and `evaluate` take images, as those of any classifier.
  """

  def compile(
    self,
    *args: Any,
    prepare: Callable[[Any], Any] | None = None,
    **kwargs: Any,
  ) -> None:
    """As Keras' own, without Information Back; see `look_back`.

    Args:
      *args: of Keras.
      prepare: gives `images`, `raw` and `has_raw` of a batch.
      **kwargs: of Keras.
    """
    super().compile(*args, **kwargs)
    self._prepare = prepare
    # Within the scope of `compile`, which may be that of several replicas. A
    # function, because Keras would report it without Information Back too, and
    # count it as weights.
    similarity = tf.keras.metrics.Mean(name="ib_loss")
    self._similarity = lambda: similarity
    self.look_back(0.0)

  def look_back(
    self,
    weight: float,
    feature: str = "features",
    batch_norm: str = "moving",
  ) -> None:
    """Sets Information Back, after `compile`.

    Args:
      weight: lambda; with 0 the raw images are not looked at.
      feature: name of the layer whose output is r.
      batch_norm: see `choices.BATCH_NORMS`.
    """
    self._weight = weight
    self._batch_norm = batch_norm
    views = tf.keras.Model(
      self.inputs, [self.get_layer(feature).output, self.outputs[0]]
    )
    # A function, because Keras would track a model and all its weights again.
    self._views = lambda images, training: views(images, training=training)

  @property
  def metrics(self) -> list[tf.keras.metrics.Metric]:
    """Loss and accuracy; with Information Back also L_sim."""
    return super().metrics + ([self._similarity()] if self._weight else [])

  @tf.autograph.experimental.do_not_convert  # It would only take longer.
  def train_step(self, data: tuple) -> dict[str, tf.Tensor]:
    """One step of `fit` on a batch for `prepare`, and its labels."""
    inputs, labels = data
    images, raw, has_raw = self._prepare(inputs)
    looks_back = self._weight and raw is not None
    if looks_back:
      rows = _rows_with(has_raw)
      # A row that only stands in must not show batch normalisation a black
      # image.
      seen = tf.where(has_raw[:, None, None, None], raw, images)
      r1 = self._raw_features(tf.gather(seen, rows))
      is_pair = tf.gather(has_raw, rows)
    with tf.GradientTape() as tape:
      r2, logits = self._views(images, training=True)
      loss = self.compute_loss(inputs, labels, logits)
      if looks_back:
        pairs = similarity_loss(r1, tf.gather(r2, rows))
        # As Keras' own losses: their gradients are summed over replicas.
        replicas = self.distribute_strategy.num_replicas_in_sync
        similarity = losses.mean_of_chosen(pairs, is_pair)
        loss += self._weight * similarity / replicas
    self.optimizer.minimize(loss, self.trainable_variables, tape=tape)
    if looks_back:
      self._similarity().update_state(pairs, tf.cast(is_pair, tf.float32))
    return self.compute_metrics(inputs, labels, logits, None)

  def _raw_features(self, raw: tf.Tensor) -> tf.Tensor:
    """r1 of raw images, [m, …]."""
    if self._batch_norm == "moving":
      return self._views(raw, training=False)[0]
    if self._batch_norm == "update":
      return self._views(raw, training=True)[0]
    averages = batch_norm.averages_of(self)
    before = [tf.identity(average) for average in averages]
    features = self._views(raw, training=True)[0]
    with tf.control_dependencies([features]):
      for average, value in zip(averages, before, strict=True):
        average.assign(value)
    return features


def _rows_with(has_raw: tf.Tensor) -> tf.Tensor:
  """Numbers of the rows with a raw image, int32 [m]; the first if none has.

  An empty batch would leave batch normalisation without statistics; the row
  that stands in for it has no weight in the loss. Among several replicas one
  without any is more likely than a whole batch without any, and then a
  reconstruction more is seen by the raw branch's statistics.
  """
  rows = tf.cast(tf.where(has_raw)[:, 0], tf.int32)
  return tf.cond(tf.size(rows) > 0, lambda: rows, lambda: tf.constant([0]))
