"""Steps on two replicas, beside the same steps on one; run as a process.

Devices must be divided before TensorFlow starts, hence a process of its own.
Prints, as JSON, by stage and variable, the largest difference between what both
have learned, relative to the largest change that the steps made; and which
variables are not the same on both replicas.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import tensorflow as tf

from ibdrr_tf import distribution, training
from ibdrr_tf.classifiers import losses
from ibdrr_tf.classifiers.classifier import build_classifier
from ibdrr_tf.classifiers.cosine import cosine_head
from ibdrr_tf.classifiers.gradients import flat
from ibdrr_tf.classifiers.information_back import ReplayClassifier
from ibdrr_tf.classifiers.optimizer import L2SGD
from ibdrr_tf.codec.lossless import code_tree
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.codec_training.lossless import _Planes
from ibdrr_tf.data import stream
from ibdrr_tf.data.augment import Augmentation
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.methods.gem import project
from ibdrr_tf.methods.lucir import ranking_loss
from ibdrr_tf.methods.si import Trace
from ibdrr_tf.random_seed import set_random_seed
from ibdrr_tf.replay.feeds import Prepared

GENERATOR = np.random.default_rng(0)
# An odd number, so that replicas have parts of different sizes.
COUNT = 11
LABELS = np.arange(COUNT) % 3
IMAGES = GENERATOR.integers(0, 256, (COUNT, 16, 16, 3)).astype(np.uint8)
RAW = GENERATOR.integers(0, 256, (COUNT, 16, 16, 3)).astype(np.uint8)
# Most have a twin, and replicas have unequal numbers of them.
HAS_RAW = np.arange(COUNT) % 4 != 1
PLANES = GENERATOR.integers(0, 8, (COUNT, 2, 2, 5))


def train(strategy, build, batches, steps, folder):
  """Builds a model, takes some steps, and gives variables as they were."""
  with strategy.scope():
    model = build()
  before = [v.numpy() for v in model.variables]
  job = training.Fit(
    epochs=steps,
    steps_per_epoch=1,
    batches=batches,
    checkpoints=folder / "checkpoints",
    tensorboard=folder / "tensorboard",
    title="a few steps",
  )
  training.fit(model, job)
  return model, before


def build_small_classifier(**options):
  set_random_seed(1)
  return build_classifier(
    backbone="resnet8",
    width=4,
    image_shape=(16, 16, 3),
    classes=3,
    # On one replica too: Keras' other, fused form corrects running variances
    # by n / (n - 1).
    synchronized=True,
    **options,
  )


def build_replay_classifier(momentum=0.0):
  model = build_small_classifier(kind=ReplayClassifier)
  model.compile(
    L2SGD(0.1, momentum, l2=5e-4, jit_compile=False),
    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    prepare=lambda inputs: Prepared(
      inputs["images"], inputs["raw"], inputs["has_raw"]
    ),
  )
  # Of all ways of batch normalisation, replicas share most in this one.
  model.look_back(0.5, batch_norm="update")
  return model


def replay_batches(epochs, share):
  examples = in_memory(IMAGES, LABELS)

  def add_twins(numbers, _):
    inputs = {
      "images": examples.read(numbers),
      "raw": tf.gather(RAW, numbers),
      "has_raw": tf.gather(HAS_RAW, numbers),
    }
    return inputs, tf.gather(LABELS, numbers)

  return stream.shuffled_batches(
    COUNT,
    lambda key: tf.zeros([COUNT, 0]),
    batch_size=COUNT,
    epochs=epochs,
    seed=stream.fold_in(0, 1),
    share=share,
  ).map(add_twins)


def build_ranked_classifier():
  model = build_small_classifier(
    head=lambda features, classes: cosine_head(features, classes, 0),
    last_relu=False,
  )
  model.compile(tf.keras.optimizers.SGD(0.1, jit_compile=False))
  student = model.up_to("cosines", "logits")

  def objective(images, labels):
    cosines, logits = student(images, training=True)
    parts = {
      "cross_entropy": losses.cross_entropy(labels, logits),
      # Replicas have unequal numbers of images of class 0, the old one.
      "ranking": ranking_loss(labels, cosines, old=1, hardest=1, margin=0.5),
    }
    return parts, logits

  model.set_objective(objective, ("cross_entropy", "ranking"))
  return model


def build_projected_classifier():
  """GEM's projection and SI's path, neither of them linear in gradients."""
  model = build_small_classifier()
  model.compile(tf.keras.optimizers.SGD(0.1, jit_compile=False))
  trace = model.trace = Trace(flat(model.trainable_variables))

  def objective(images, labels):
    logits = model(images, training=True)
    each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    # Other labels: the gradient disagrees with those of both groups.
    parts = {"cross_entropy": losses.cross_entropy((labels + 1) % 3, logits)}
    for k in (0, 1):
      parts[f"group_{k}"] = losses.mean_of_chosen(each, labels == k)
    return parts, logits

  def update(gradients, apply):
    before = flat(model.trainable_variables)
    groups = tf.stack([gradients["group_0"], gradients["group_1"]])
    apply(project(gradients["cross_entropy"], groups, 0.5))
    change = flat(model.trainable_variables) - before
    trace.path.assign_add(-gradients["cross_entropy"] * change)

  model.set_objective(objective, ("cross_entropy", "group_0", "group_1"))
  model.set_update(update)
  return model


def build_vqvae(optimizer=tf.keras.optimizers.SGD):
  set_random_seed(1)
  model = HierarchicalVQVAE(
    codebook_size=16,
    embedding=4,
    channels=8,
    residual_blocks=1,
    residual_channels=4,
    bottom_depth=2,
    seed=3,
  )
  generator = np.random.default_rng(5)
  for level in model.quantizers:
    level.restart_below = 0.0  # A restart takes a random vector of a replica.
    level.adopt(
      [generator.normal(size=b.shape).astype("f4") for b in level.codebooks]
    )
  model.compile(optimizer(0.1, jit_compile=False))
  return model


def image_batches(epochs, share):
  examples = in_memory(IMAGES, LABELS)
  return examples.training_batches(
    batch_size=COUNT,
    epochs=epochs,
    seed=stream.fold_in(0, 1),
    augment=Augmentation(0),
    share=share,
  )


def build_bit_swap():
  set_random_seed(1)
  books = np.random.default_rng(7).normal(size=(2, 8, 3))
  model = BitSwapModel(
    [code_tree.make_tree(book) for book in books],
    latents=2,
    latent_channels=2,
    width=8,
    blocks=1,
    embedding=4,
    seed=9,
  )
  model.compile(tf.keras.optimizers.SGD(0.1, jit_compile=False))
  return model


def plane_batches(epochs, share):
  return _Planes(PLANES.astype(np.int16)).batches(
    COUNT, epochs, stream.fold_in(0, 1), share
  )


# How to build a model, what to feed it, for how many steps. The last two have
# optimisers with a memory, which only a second step shows.
STAGES = {
  "classifier": (build_replay_classifier, replay_batches, 1),
  "vqvae": (build_vqvae, image_batches, 1),
  "bitswap": (build_bit_swap, plane_batches, 1),
  "ranking": (build_ranked_classifier, image_batches, 1),
  "projection": (build_projected_classifier, image_batches, 1),
  "momentum": (lambda: build_replay_classifier(0.9), replay_batches, 2),
  "adam": (lambda: build_vqvae(tf.keras.optimizers.Adam), image_batches, 2),
}


def compare(two, build, batches, steps):
  """Differences by variable; see the top."""
  with tempfile.TemporaryDirectory() as folder:
    folder = Path(folder)
    shared, _ = train(two, build, batches, steps, folder / "two")
    one = distribution.make_strategy("none")
    alone, before = train(one, build, batches, steps, folder / "one")
  differences = {}
  is_metric = {id(v) for m in alone.metrics for v in m.variables}
  triples = zip(alone.variables, shared.variables, before, strict=True)
  for mine, theirs, old in triples:
    if id(mine) in is_metric or mine.dtype == tf.bool:
      continue
    change = np.abs(mine.numpy() - old).max() if old.size else 0.0
    error = np.abs(mine.numpy() - theirs.numpy()).max() if old.size else 0.0
    # A gradient that cancels to nothing leaves nothing to compare with.
    differences[mine.name] = float(error / max(change, 1e-4))
  changed = sum(
    not np.array_equal(v.numpy(), old)
    for v, old in zip(alone.variables, before, strict=True)
  )
  return {
    "differences": differences,
    "changed": changed,
    "apart": variables_apart(two, shared),
  }


def variables_apart(strategy, model):
  """Names of those whose copies differ, the optimiser's among them."""
  sums = {id(v) for m in model.metrics for v in m.variables}
  apart = []
  for variable in [*model.variables, *model.optimizer.variables]:
    first, *others = strategy.experimental_local_results(variable)
    if id(variable) not in sums and not all(
      np.array_equal(first.numpy(), other.numpy()) for other in others
    ):
      apart.append(variable.name)
  return apart


if __name__ == "__main__":
  # One for all stages: a second one in a process would reuse the names of the
  # first one's collective operations.
  two = distribution.make_strategy("mirrored", 2)
  assert two.num_replicas_in_sync == 2
  tf.config.experimental.enable_op_determinism()
  chosen = sys.argv[1:] or STAGES
  print(json.dumps({name: compare(two, *STAGES[name]) for name in chosen}))
