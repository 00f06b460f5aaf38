"""The networks of a learner, on the disk.

classifier/network-<step>.npz   weights that the next step may start from
classifier/classifier.keras     the same for others: loads without us, in
                                Keras 2.14 and in tf-keras 2.17
classifier/class_names.json     names in the order of its outputs
classifier/.published           number of the step whose network these two are
"""

import json
import pathlib

import ml_collections
import tensorflow as tf

from ibdrr_tf import classifier_training, files, keras_file
from ibdrr_tf.classifier_training import Network
from ibdrr_tf.classifiers.classifier import Classifier, plain
from ibdrr_tf.distribution import Team
from ibdrr_tf.methods import Method, recipe_of
from ibdrr_tf.replay.networks import damaged, read_network, write_network

__all__ = ["ClassifierFolder"]

_PUBLISHED = ".published"


class ClassifierFolder:
  """Networks of steps; the one that counts is the state's business.

  Args:
    path: the folder; need not exist yet.
    method: says how a network is built.
    config: likewise.
    strategy: networks are made within its scope.
  """

  def __init__(
    self,
    path: pathlib.Path,
    method: Method,
    config: ml_collections.ConfigDict,
    strategy: tf.distribute.Strategy,
  ):
    self._path = path
    self._method = method
    self._config = config
    self._strategy = strategy
    self._team = Team(strategy)

  def build(
    self, network: dict[str, int], image_shape: tuple[int, int, int]
  ) -> Classifier:
    """A network with random weights.

    Args:
      network: `classes` of its head, `old_classes`, those that it knew before
        it was last trained, and `backbones` if there are several.
      image_shape: (height, width, 3).
    """
    recipe = recipe_of(
      self._method,
      self._config,
      old_classes=network["old_classes"],
      backbones=network.get("backbones", 1),
    )
    return classifier_training.build(
      self._config,
      self._strategy,
      classes=network["classes"],
      image_shape=image_shape,
      recipe=recipe,
    )

  def write(self, step: int, classifier: Classifier) -> None:
    """Keeps the network of a step; those of other steps stay."""
    weights = classifier.up_to("logits").get_weights()
    stored = self._config.classifier.stored
    self._team.on_chief(
      lambda: write_network(self._file(step), weights, stored)
    )

  def read(
    self,
    step: int,
    network: dict[str, int],
    image_shape: tuple[int, int, int],
  ) -> Network:
    """The network of a step, built as it was then; see `build`.

    Raises:
      UserError: if its file is missing, damaged or of another network.
    """
    # A state may declare any width; a network has a weight of 4 bytes for each
    # channel and each class at least.
    least = 4 * max(self._config.classifier.width, network["classes"])
    if self.size(step) < least:
      raise damaged(self._file(step))
    classifier = self.build(network, image_shape)
    read_network(self._file(step), classifier.up_to("logits"))
    return Network(
      classifier,
      self._config.eval_batch_size,
      self._config.classifier.test_views,
    )

  def size(self, step: int) -> int:
    """Bytes of the network of a step; 0 if there is none."""
    path = self._file(step)
    return path.stat().st_size if path.is_file() else 0

  def is_published(self, step: int) -> bool:
    """Whether the Keras file is that of a step."""

    # Not by the times of files: clocks are set back, and copies have others.
    def answer() -> str:
      mark = self._path / _PUBLISHED
      is_own = mark.is_file() and mark.read_bytes() == f"{step}\n".encode()
      names = ("class_names.json", "classifier.keras")
      is_own &= all((self._path / name).is_file() for name in names)
      return "yes" if is_own else ""

    return bool(self._team.ask_chief(answer))

  def publish(
    self, step: int, network: Network, names: tuple[str, ...]
  ) -> None:
    """Writes the network of a step for others, with its class names."""
    exported = plain(network.classifier)

    def write() -> None:
      with files.replaced(self._path / "classifier.keras") as beside:
        keras_file.save(exported, beside)
      text = json.dumps(list(names), indent=2) + "\n"
      files.write_text(self._path / "class_names.json", text)
      files.write_text(self._path / _PUBLISHED, f"{step}\n")

    self._team.on_chief(write)

  def withdraw(self) -> None:
    """Removes what `publish` wrote."""

    def remove() -> None:
      for name in (_PUBLISHED, "class_names.json", "classifier.keras"):
        (self._path / name).unlink(missing_ok=True)

    self._team.on_chief(remove)

  def keep_only(self, step: int) -> None:
    """Removes the networks of all other steps."""

    def remove() -> None:
      for path in self._path.glob("network-*.npz"):
        if path != self._file(step) and not path.is_dir():
          path.unlink()

    self._team.on_chief(remove)

  def _file(self, step: int) -> pathlib.Path:
    return self._path / f"network-{step:03d}.npz"
