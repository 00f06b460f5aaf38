"""Small steps of learning: tasks, a network that only looks, and methods."""

import json
import pathlib

import ml_collections
import numpy as np
import tensorflow as tf
from tiny_codec import small_vqvae

from ibdrr_tf.classifier_training import Network, build
from ibdrr_tf.classifiers.shrink import without_class
from ibdrr_tf.codec.lossless import code_tree
from ibdrr_tf.codec.lossless.bit_swap_codec import BitSwapCodec
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.data.examples import Examples, in_memory
from ibdrr_tf.data.task import Task
from ibdrr_tf.evaluation.ledger import Ledger
from ibdrr_tf.methods import Step, check_method, learn_step, recipe_of
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay.codec import ReplayCodec
from ibdrr_tf.replay.memory import Memory, Setting
from ibdrr_tf.replay.networks import read_network, write_network
from ibdrr_tf.validation import validate

SIZE = 16
SHAPE = (SIZE, SIZE, 3)


def make_examples(counts: dict[int, int], seed: tuple[int, ...]) -> Examples:
  """Smooth images, no two alike; classes are not in runs.

  Args:
    counts: number of images of each label.
    seed: images and their order are a function of it.
  """
  generator = np.random.default_rng(seed)
  labels = np.repeat(list(counts), list(counts.values()))
  labels = generator.permutation(labels)
  corners = generator.integers(0, 256, (len(labels), 2, 2, 3))
  images = tf.image.resize(corners, SHAPE[:2]).numpy().astype(np.uint8)
  return in_memory(images, labels)


def make_task(
  step: int,
  counts: dict[int, int],
  known: int = 0,
  held_out: dict[int, int] | None = None,
) -> Task:
  """New images of some classes; the first `known` labels are old ones."""
  return Task(
    step=step,
    new=make_examples(counts, (step, 0)),
    held_out=make_examples(held_out, (step, 1)) if held_out else None,
    old_classes=known,
    classes=max(known, max(counts) + 1),
  )


def make_tasks(*counts: dict[int, int], held_out: int = 0) -> list[Task]:
  """One task for each step; `held_out` images of each of its classes test."""
  tasks, known = [], 0
  for step, new in enumerate(counts):
    tests = dict.fromkeys(new, held_out) if held_out else None
    tasks.append(make_task(step, new, known, tests))
    known = tasks[-1].classes
  return tasks


def pixels(examples: Examples) -> np.ndarray:
  """All images, uint8 [n, h, w, 3]."""
  return examples.read(tf.range(len(examples), dtype=tf.int64)).numpy()


class Onlooker:
  """Stands for a trained network: its features are the pixels themselves."""

  def features(self, examples):
    images = pixels(examples)
    return images.reshape(len(images), -1).astype(np.float32) / 255

  def outputs(self, layer, examples):
    return self.features(examples).reshape(-1, 4, 4, 48)

  def logits(self, examples):
    return self.features(examples)[:, : int(examples.labels.max(initial=0)) + 1]


def make_models(count: int, **options) -> tuple:
  """A VQ-VAE, and Bit-Swap models that have learned nothing, but code."""
  set_random_seed(0)
  vqvae = small_vqvae(64, **options)
  if options.get("blank"):
    vqvae.quantize(pixels(make_examples({0: 64}, (9,))), training=True)
  shape = vqvae.get_config()
  trees = [
    code_tree.make_tree(book.numpy())
    for quantizer in vqvae.quantizers
    for book in quantizer.codebooks
  ]
  models = [
    BitSwapModel(
      trees,
      shape["top_depth"],
      shape["bottom_depth"],
      latents=0 if options.get("blank") else 1,
      width=8,
      blocks=1,
      embedding=4,
      blank=shape.get("blank", False),
    )
    for _ in range(count)
  ]
  return vqvae, models


class TinyCodecs:
  """Makes codecs that share graphs; each has a folder of its own.

  Args:
    **options: of the VQ-VAE.

  Attributes:
    fits: how many images each fit of a Bit-Swap model has seen.
  """

  def __init__(self, **options):
    self.vqvae, self._models = make_models(2, **options)
    chain_images = 64 if options.get("blank") else 8
    self._coder = BitSwapCodec(chain_images=chain_images, group=4)
    self.fits: list[int] = []

  def make(self, folder: pathlib.Path) -> ReplayCodec:
    """A codec whose Bit-Swap model is another one after every fit."""
    folder.mkdir(parents=True, exist_ok=True)
    stage = folder / "vqvae.ibvq"
    if not stage.is_file():
      stage.write_bytes(bytes(1234))
    return ReplayCodec(
      folder=folder,
      vqvae=self.vqvae,
      vqvae_bytes=stage.stat().st_size,
      fit_bit_swap=self._fit,
      coder=self._coder,
    )

  def _fit(self, codes, *, phase, start):
    self.fits.append(len(codes))
    return self._models[phase % 2]


class Steps:
  """A method that takes steps in a folder, as a learner does.

  Args:
    config: of the method.
    folder: of the state.
    codecs: for methods that keep codes.
    step: the last step that was taken there; -1 for none.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    folder: pathlib.Path,
    codecs: TinyCodecs | None = None,
    step: int = -1,
  ):
    # As a learner does; without it, equal steps may differ in the last bit.
    tf.config.experimental.enable_op_determinism()
    validate(config)
    self.config = config
    self.folder = folder
    self.method = check_method(config)
    self._strategy = tf.distribute.get_strategy()
    codec = None
    if self.method.uses_codec:
      codec = codecs.make(folder / "codec")
    setting = Setting(config, folder / "memory", SHAPE, codec)
    self.memory: Memory = self.method.memory(setting, step)
    self.network: Network | None = None

  def step(self, task: Task) -> Step:
    """What the method's functions see."""
    return Step(
      self.config, self._strategy, self.folder, task, self.memory, self.network
    )

  def train(self, task: Task) -> Network:
    """Learns; nothing is kept yet."""
    return learn_step(self.method, self.step(task))[0]

  def learn(self, task: Task) -> Network:
    """Takes a whole step and writes its network."""
    network = self.train(task)
    self.keep(task, network)
    write_network(
      self._network_path(task.step),
      network.classifier.up_to("logits").get_weights(),
    )
    backbones = network.classifier.backbones
    self._heads = (task.classes, task.old_classes, backbones)
    path = self._network_path(task.step).with_suffix(".json")
    path.write_text(json.dumps(self._heads))
    self.network = network
    return network

  def keep(self, task: Task, network=None) -> None:
    """Only remembers a step, by default without any training."""
    self.memory.add(task, network or Onlooker())
    self.memory.settle()

  def forget(self, step: int, label: int) -> None:
    """Takes a class out of the memory, and out of the network if there is."""
    self.memory.forget(step, label)
    self.memory.settle()
    if self.network is not None:
      classes, old, backbones = self._heads
      self._heads = (classes - 1, old - (label < old), backbones)
      smaller = self._build(*self._heads)
      without_class(self.network.classifier, smaller, label)
      self.network = Network(smaller, self.config.eval_batch_size)

  def new_classifier(self, task: Task):
    """A classifier as a step begins with it: its weights are set already."""
    backbones = 1
    if self.method.grows:
      backbones = self._heads[2] + bool(task.new_labels)
    classifier = self._build(task.classes, task.old_classes, backbones)
    self.method.start(self.step(task), classifier)
    return classifier

  def load_network(self, task: Task) -> None:
    """Takes the network of the step of a task from its file."""
    path = self._network_path(task.step).with_suffix(".json")
    self._heads = json.loads(path.read_text())
    classifier = self._build(*self._heads)
    read_network(self._network_path(task.step), classifier.up_to("logits"))
    self.network = Network(classifier, self.config.eval_batch_size)

  def scores(self, examples: Examples) -> np.ndarray:
    """Probabilities by the method's own prediction."""
    return self.method.predict(self.network, self.memory, examples)

  def _build(self, classes: int, old_classes: int, backbones: int):
    return build(
      self.config,
      self._strategy,
      classes=classes,
      image_shape=SHAPE,
      recipe=recipe_of(
        self.method,
        self.config,
        old_classes=old_classes,
        backbones=backbones,
      ),
    )

  def _network_path(self, step: int) -> pathlib.Path:
    return self.folder / "classifier" / f"network-{step:03d}.npz"


def files_in(folder: pathlib.Path) -> dict[str, bytes]:
  """All files of a folder, by name."""
  return {path.name: path.read_bytes() for path in folder.iterdir()}


def bytes_in(*folders: pathlib.Path) -> int:
  """Sizes of all files of some folders; those that are not there have none."""
  return sum(
    path.stat().st_size
    for folder in folders
    if folder.is_dir()
    for path in folder.iterdir()
  )


def assert_ledger_matches(steps: Steps) -> Ledger:
  """Every byte of memory and codec is in the ledger, and nothing else."""
  ledger = Ledger(**steps.memory.stored_bytes())
  assert ledger.total == bytes_in(
    steps.folder / "memory", steps.folder / "codec"
  )
  return ledger
