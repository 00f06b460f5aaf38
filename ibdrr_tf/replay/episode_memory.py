"""Images as real-valued codes, which become clusters when bytes are scarce.

A code is a vector of numbers that are not negative, eight bits each with one
scale. Every step has an autoencoder of its own, whose decoder is kept: old
codes never meet another one. A *cluster* stands for several codes of one class
and step: their mean, their standard deviations and their number.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ibdrr_tf.classifiers import losses
from ibdrr_tf.classifiers.perception import feature_distance
from ibdrr_tf.data import stream
from ibdrr_tf.data.examples import Examples, concatenate, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay import autoencoders, product_quantizer
from ibdrr_tf.replay.autoencoders import scaled, to_pixels
from ibdrr_tf.replay.exemplars import without
from ibdrr_tf.replay.image_memory import read_all
from ibdrr_tf.replay.image_store import EncodedImages, ImageStore, file_bytes
from ibdrr_tf.replay.memory import Memory, Setting
from ibdrr_tf.replay.networks import read_network, write_network

__all__ = ["EpisodeAutoencoder", "EpisodeMemory", "decay", "merge"]

_START, _DRAW = 17, 18  # folded into the seed
# Bytes of the manifest for each decoder and class, beyond what is planned for.
_OF_DECODER, _OF_CLASS = 40, 8
# As many clusters as codebook entries that `product_quantizer` can tell.
_MOST_CLUSTERS = 256


def decay(accuracy: float, accuracy_of_codes: float) -> float:
  """The weight of reconstructions in the loss: exp(accuracy ratio - 1).

  Args:
    accuracy: of the network on images that it has learned from.
    accuracy_of_codes: on their reconstructions.
  """
  lost = 1.0 - accuracy_of_codes / max(accuracy, 1e-9)
  return math.exp(-max(lost, 0.0))


def merge(
  means: np.ndarray, deviations: np.ndarray, counts: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Merges codes or clusters that are near each other into fewer clusters.

  Args:
    means: float [n, d].
    deviations: float [n, d]; zeros for codes.
    counts: int [n], codes that each stands for.
    most: how many clusters to make at most.

  Returns:
    Means and standard deviations, float32 [m, d], and counts, int32 [m].
  """
  clusters = min(most, len(means), _MOST_CLUSTERS)
  size = means.shape[1]
  books = product_quantizer.fit(means, size, clusters, 0)
  of_each = product_quantizer.encode(means, books)[:, 0]
  rows = []
  for number in np.unique(of_each):
    mine = of_each == number
    weights = counts[mine, np.newaxis] / counts[mine].sum()
    mean = (weights * means[mine]).sum(axis=0)
    squares = deviations[mine] ** 2 + (means[mine] - mean) ** 2
    rows.append((mean, np.sqrt((weights * squares).sum(axis=0))))
  together = np.bincount(of_each, counts)[np.unique(of_each)]
  found, spread = (np.stack(part) for part in zip(*rows, strict=True))
  return (
    found.astype(np.float32),
    spread.astype(np.float32),
    together.astype(np.int32),
  )


class EpisodeAutoencoder(autoencoders.Coder):
  """A convolutional autoencoder that also looks through a classifier.

  Args:
    image_shape: (height, width, 3).
    widths: channels of each convolution of stride 2.
    depth: channels of a code.
    content: weight of the distance in features; 1 - content is that of pixels.
    distance: of two images, in the eyes of the classifier.
  """

  PARTS = ("reconstruction", "content")

  def __init__(self, image_shape, widths, depth, content=0.0, distance=None):
    super().__init__()
    self.encoder = autoencoders.build_encoder(image_shape, widths, depth)
    self.decoder = autoencoders.build_decoder(image_shape, widths, depth)
    self._content, self._distance = content, distance

  def parts(self, images, labels, key) -> dict[str, tf.Tensor]:
    """Squared error of pixels, and distance in features."""
    images = scaled(images)
    back = self.decoder(tf.nn.relu(self.encoder(images)))
    error = tf.reduce_mean(tf.square(back - images), axis=[1, 2, 3])
    content = self._distance((images + 1.0) / 2.0, (back + 1.0) / 2.0)
    content = tf.cast(content, tf.float32)
    return {
      "reconstruction": (1.0 - self._content) * losses.batch_mean(error),
      "content": self._content * losses.batch_mean(content),
    }

  def codes(self, images: tf.Tensor) -> tf.Tensor:
    """Codes of images, float32 [b, numbers of a code]."""
    codes = tf.nn.relu(self.encoder(scaled(images)))
    return tf.reshape(codes, [len(codes), -1])


class EpisodeMemory(Memory):
  """Codes of all images seen, or clusters where a byte budget is reached.

  All classes may then have alike many bytes. Classes that need no more keep
  their codes; those of others are merged. No images that only test are kept.
  """

  def __init__(self, setting: Setting, step: int | None = -1):
    super().__init__(setting, step)
    self._section = setting.config.eec
    self.store = ImageStore(self.folder, "episodes")
    height, width = autoencoders.grid_of(
      setting.image_shape, len(self._section.widths)
    )
    self._grid = (height, width, self._section.depth)
    self._size = height * width * self._section.depth

  def examples(self, task: Task) -> Examples:
    """Reconstructed images of old classes, then the new ones."""
    if self.config.memory.total_bytes:
      self._check_room(task)
    return concatenate([in_memory(*self.replayed()), task.new])

  def class_weights(self, classes: int) -> np.ndarray:
    """Weights of classes in the loss, float32; 1 for those without codes."""
    weights = np.ones(classes, np.float32)
    known = self._part["weights"]
    weights[: len(known)] = known
    return weights

  def replayed(self) -> tuple[np.ndarray, np.ndarray]:
    """Decoded images, uint8 [n, h, w, 3], and their labels, int32 [n].

    A cluster gives as many as it stands for, drawn from its normal
    distribution, the same ones each time.
    """
    kept = self.store.read()
    steps, means, deviations = self._vectors(kept.images)
    generator = np.random.default_rng((self.config.seed, _DRAW))
    means = np.repeat(means, kept.counts, axis=0)
    noise = generator.normal(size=means.shape).astype(np.float32)
    drawn = means + noise * np.repeat(deviations, kept.counts, axis=0)
    codes = np.maximum(drawn, 0.0)
    steps = np.repeat(steps, kept.counts)
    images = np.zeros([len(codes), *self.setting.image_shape], np.uint8)
    for step in np.unique(steps):
      mine = np.flatnonzero(steps == step)
      decoder = self._decoder(int(step))
      images[mine] = self._decoded(decoder, codes[mine])
    return images, np.repeat(kept.labels, kept.counts)

  def add(self, task: Task, network: Any) -> None:
    """Trains an autoencoder on the new images, and keeps their codes."""
    old, part = self.store.read(), self._part
    if not len(task.new):
      self._write(task.step, old, part)
      return
    coder = self._train(task, network)
    order = np.argsort(task.new.labels, kind="stable")
    images, labels = read_all(task.new)[order], task.new.labels[order]
    codes = autoencoders.in_batches(coder.codes, images)
    strings = [_to_bytes(task.step, code) for code in codes]
    # As they will come back.
    _, means, _ = self._vectors(strings)
    weight = self._decay(network, images, labels, coder.decoder, means)
    weights = self.class_weights(task.classes)
    weights[np.unique(labels)] = weight
    path = self.folder.new_file("decoder", task.step, "npz")
    decoder = coder.decoder.get_weights()
    self.folder.team.on_chief(lambda: write_network(path, decoder))
    part = {
      "files": {**part["files"], path.name: path.stat().st_size},
      "weights": [round(float(w), 3) for w in weights],
    }
    new = EncodedImages(strings, labels)
    self._write(task.step, EncodedImages.join([old, new]), part)

  def forget(self, step: int, label: int) -> None:
    """Keeps what there is of the other classes."""
    part = self._part
    weights = [w for k, w in enumerate(part["weights"]) if k != label]
    left = without(self.store.read(), label)
    self._write(step, left, {**part, "weights": weights})

  def stored_bytes(self) -> dict[str, int]:
    """Codes and clusters, the files that hold them, and decoders."""
    return self._coded_bytes(self.store.contents, self._part)

  @property
  def _part(self) -> dict[str, Any]:
    """Decoders, and the weights of classes in the loss."""
    return self.folder.part("decoders", {"files": {}, "weights": []})

  def _train(self, task: Task, network: Any) -> EpisodeAutoencoder:
    seed = stream.fold_in(self.config.seed, task.step, _START)
    # The same first weights in every process.
    set_random_seed(int(seed[0].numpy()) & 0x7FFFFFFF)
    config = self._section
    with self.setting.team.strategy.scope():
      coder = EpisodeAutoencoder(
        self.setting.image_shape,
        tuple(config.widths),
        config.depth,
        config.content,
        feature_distance(network.classifier),
      )
    autoencoders.fit_coder(
      coder,
      task.new,
      section=config,
      config=self.config,
      state=self.folder.path.parent,
      step=task.step,
    )
    return coder

  def _decay(self, network, images, labels, decoder, codes) -> float:
    """The weight of new classes, from the accuracies of their images."""

    def accuracy(images: np.ndarray) -> float:
      named = network.logits(in_memory(images, labels)).argmax(axis=1)
      return float(np.mean(named == labels))

    back = self._decoded(decoder, codes)
    # Workers may differ in a last bit: the chief decides.
    found = decay(accuracy(images), accuracy(back))
    return float(self.setting.team.ask_chief(lambda: repr(found)))

  def _decoder(self, step: int) -> tf.keras.Model:
    decoder = autoencoders.build_decoder(
      self.setting.image_shape, tuple(self._section.widths), self._grid[2]
    )
    read_network(self.folder.path / f"decoder-{step:03d}.npz", decoder)
    return decoder

  def _decoded(self, decoder: tf.keras.Model, codes: np.ndarray) -> np.ndarray:
    grids = codes.reshape(-1, *self._grid)
    return autoencoders.in_batches(lambda x: to_pixels(decoder(x)), grids)

  def _vectors(self, strings: list[bytes]) -> tuple:
    """Steps int [n], means and deviations float32 [n, d] of strings."""
    width = self._size + 2
    means = np.zeros([len(strings), self._size], np.float32)
    deviations = np.zeros_like(means)
    for row, string in enumerate(strings):
      means[row] = _from_bytes(string[2 : 2 + width])
      if len(string) > 2 + width:
        deviations[row] = _from_bytes(string[2 + width :])
    return _steps(strings), means, deviations

  def _write(
    self, step: int, images: EncodedImages, part: dict[str, Any]
  ) -> None:
    """Writes codes, merged as far as the byte budget asks for it."""
    used = {f"decoder-{k:03d}.npz" for k in _steps(images.images)}
    files = {name: size for name, size in part["files"].items() if name in used}
    part = {**part, "files": files}
    room = self._room(self._fixed(files, len(part["weights"])))
    old, contents = self.store.read(), self.store.contents
    added = images.take(np.arange(len(images)) >= len(old))
    if (
      images.images[: len(old)] == old.images
      # A class in two files needs more bytes than in one.
      and sum(contents["files"].values()) + file_bytes(added) <= room
      and self.may_append(contents)
    ):
      stored = self.store.append(step, added)
    else:
      if file_bytes(images) > room:
        images = self._merged(images, self._limit(images, room))
      stored = self.store.replace(step, images)
    self.folder.write(step, {"decoders": part, self.store.part: stored})

  def _fixed(self, files: dict[str, int], classes: int) -> int:
    """Bytes of decoders, and of their part of the manifest."""
    return sum(files.values()) + _OF_DECODER * len(files) + _OF_CLASS * classes

  def _limit(self, images: EncodedImages, room: float) -> int:
    """The most clusters that a class and step may have, so that all fit."""

    def size(most: int) -> int:
      return file_bytes(self._sizes(images, most))

    if size(1) > room:
      raise self._too_small(self.config.memory.total_bytes - room + size(1))
    low, high = 1, _MOST_CLUSTERS + 1
    while high - low > 1:
      middle = (low + high) // 2
      low, high = (middle, high) if size(middle) <= room else (low, middle)
    return low

  @property
  def _cluster_bytes(self) -> int:
    return 2 + 2 * (self._size + 2)

  def _groups(self, images: EncodedImages, most: int) -> Iterator[tuple]:
    """Indices of each class and step, and into how many clusters to merge them.

    None leaves those whose codes are no longer than so many clusters.
    """
    steps = _steps(images.images)
    for step, label in sorted(set(zip(steps, images.labels, strict=True))):
      mine = np.flatnonzero((steps == step) & (images.labels == label))
      length = sum(len(images.images[k]) for k in mine)
      is_long = length > most * self._cluster_bytes
      yield mine, min(most, len(mine)) if is_long else None

  def _sizes(self, images: EncodedImages, most: int) -> EncodedImages:
    """What `_merged` gives, as long but empty; counts are the largest ones."""
    parts = [images.take(np.zeros(0, int))]
    for mine, made in self._groups(images, most):
      group = images.take(mine)
      if made:
        group = EncodedImages(
          [bytes(self._cluster_bytes)] * made,
          np.full(made, group.labels[0]),
          counts=np.full(made, group.counts.sum()),
        )
      parts.append(group)
    return EncodedImages.join(parts)

  def _merged(self, images: EncodedImages, most: int) -> EncodedImages:
    """At most so many clusters for each class and step."""
    parts = [images.take(np.zeros(0, int))]
    for mine, made in self._groups(images, most):
      group = images.take(mine)
      if made:
        steps, means, deviations = self._vectors(group.images)
        found = merge(means, deviations, group.counts, made)
        strings = [
          _to_bytes(int(steps[0]), mean, deviation)
          for mean, deviation in zip(*found[:2], strict=True)
        ]
        labels = np.full(len(strings), group.labels[0])
        group = EncodedImages(strings, labels, counts=found[2])
      parts.append(group)
    return EncodedImages.join(parts)

  def _check_room(self, task: Task) -> None:
    """Refuses a hopeless byte budget before training: a cluster of a class."""
    if self.step < 0:  # The size of a decoder is not known yet.
      return
    files = dict(self._part["files"])
    labels = np.unique(task.new.labels)
    files["new"] = max(files.values(), default=0) if len(labels) else 0
    new = EncodedImages(
      [bytes(self._cluster_bytes)] * len(labels),
      labels,
      counts=np.full(len(labels), len(task.new)),
    )
    least = EncodedImages.join([self._sizes(self.store.read(), 1), new])
    self._check_least(file_bytes(least), self._fixed(files, task.classes))


def _steps(strings: list[bytes]) -> np.ndarray:
  """The step that each code or cluster is of, int [n]."""
  return np.array([int.from_bytes(s[:2], "little") for s in strings], int)


def _to_bytes(step: int, *vectors: np.ndarray) -> bytes:
  """A code, or the mean and the deviations of a cluster, in 8 bits."""
  parts = [step.to_bytes(2, "little")]
  for vector in vectors:
    scale = np.float16(vector.max(initial=0.0) / 255)
    levels = np.rint(vector / np.float32(scale or 1.0))
    parts += [scale.tobytes(), levels.clip(0, 255).astype(np.uint8).tobytes()]
  return b"".join(parts)


def _from_bytes(data: bytes) -> np.ndarray:
  """One vector: float32 [d]."""
  scale = np.frombuffer(data[:2], np.float16)[0]
  return np.frombuffer(data[2:], np.uint8) * np.float32(scale)
