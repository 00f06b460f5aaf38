"""Bits-back coding by an independent coder, on the same distributions.

`constriction` has an ANS coder, which is a true stack: it needs none of our
frames and differences. What it makes of the same model is what ours should.
"""

import constriction
import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec.lossless import code_tree, latents
from ibdrr_tf.codec.lossless.bit_swap import BitSwap
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.random_seed import set_random_seed

# Groups so large that it hardly counts what the ends of strings cost.
CODES, GROUP = 16, 200
models = constriction.stream.model


class AnsBitSwap:
  """Section 3.2 of the paper, one line a step, for a chain of two latents."""

  def __init__(self, model, seed_words=2000):
    self.model = model
    self.tables = latents.make_tables()
    words = np.random.default_rng(0).integers(0, 1 << 32, seed_words)
    self.ans = constriction.stream.stack.AnsCoder(words.astype(np.uint32))

  def probabilities(self, distribution, first):
    whole, table = distribution.bins()
    rows = [
      np.diff(self.tables.cumulative[first + t]) for t in table.numpy().ravel()
    ]
    return whole.numpy(), np.array(rows, np.float32) / (1 << 16)

  def pop(self, q):
    whole, rows = self.probabilities(q, self.tables.posterior)
    drawn = self.ans.decode(models.Categorical(perfect=False), rows)
    offset = drawn.reshape(whole.shape) - self.tables.posterior_reach
    return tf.constant(whole + offset, tf.float32)

  def unpop(self, q, latent):
    whole, rows = self.probabilities(q, self.tables.posterior)
    value = (
      latent.numpy().astype(np.int32) - whole + self.tables.posterior_reach
    )
    self.ans.encode_reverse(
      value.ravel(), models.Categorical(perfect=False), rows
    )

  def push(self, p, latent):
    whole, rows = self.probabilities(p, self.tables.prior)
    value = latent.numpy().astype(np.int32) - whole + self.tables.prior_reach
    self.ans.encode_reverse(
      value.ravel(), models.Categorical(perfect=False), rows
    )

  def pull(self, p):
    whole, rows = self.probabilities(p, self.tables.prior)
    drawn = self.ans.decode(models.Categorical(perfect=False), rows)
    offset = drawn.reshape(whole.shape) - self.tables.prior_reach
    return tf.constant(whole + offset, tf.float32)

  def push_codes(self, latent, planes):
    """Planes are pushed last first, since a stack gives them back reversed."""
    model, embedded = self.model, self.model.embed(planes)
    shape = tf.shape(planes)
    context = model.start_context(latent, shape[0], shape[1:3])
    steps = []
    for k, level in enumerate(model.levels):
      nodes = tf.gather(model.nodes[level], planes[..., k])
      odds = model.decision_table(level).log_odds(
        model.features(context, k), nodes
      )
      bits = tf.gather(model.bits[level], planes[..., k])
      steps.append((bits.numpy(), odds.numpy()))
      if k < len(model.context):
        context = model.add_context(context, k, embedded[k])
    for bits, odds in reversed(steps):
      for decision in reversed(range(bits.shape[-1])):
        self.ans.encode_reverse(
          bits[..., decision].ravel(),
          models.Bernoulli(perfect=False),
          self.chance(odds[..., decision]),
        )

  def pull_codes(self, latent, grid):
    model = self.model
    context, planes = model.start_context(latent, 1, grid), []
    for k, level in enumerate(model.levels):
      features = model.features(context, k)
      node = np.zeros((features.shape[0], *grid), np.int32)
      for _ in range(model.bits[level].shape[1]):
        odds = model.decision_table(level).log_odds(
          features, node[..., np.newaxis]
        )
        bits = self.ans.decode(
          models.Bernoulli(perfect=False), self.chance(odds.numpy()[..., 0])
        )
        node = 2 * node + 1 + bits.reshape(node.shape)
      codes = np.argsort(model.trees[level])[node - (CODES - 1)]
      planes.append(codes.astype(np.int32))
      if k < len(model.context):
        embedded = model.embeddings[level](planes[-1])
        context = model.add_context(context, k, embedded)
    return np.stack(planes, axis=-1)

  def chance(self, odds):
    index = odds.astype(int).ravel() + latents.BERNOULLI_REACH
    zero = np.array([self.tables.cumulative[i][1] for i in index])
    return (1 - zero / (1 << 16)).astype(np.float32)

  def encode(self, planes):
    model = self.model
    z1 = self.pop(model.posterior(0, model.embed(planes)))
    self.push_codes(z1, planes)
    z2 = self.pop(model.posterior(1, z1))
    self.push(model.prior(0, z2), z1)
    self.push(latents.prior(z2), z2)

  def decode(self, shape):
    model = self.model
    z2 = self.pull(latents.prior(tf.zeros([*shape, model.latent_channels])))
    z1 = self.pull(model.prior(0, z2))
    self.unpop(model.posterior(1, z1), z2)
    planes = self.pull_codes(z1, shape[1:])
    self.unpop(model.posterior(0, model.embed(planes)), z1)
    return planes


@pytest.fixture(scope="module")
def model():
  set_random_seed(0)
  generator = np.random.default_rng(0)
  trees = [
    code_tree.make_tree(generator.normal(size=(CODES, 3))) for _ in range(2)
  ]
  return BitSwapModel(trees, width=16, blocks=1, embedding=6, latent_channels=2)


def test_planes_give_the_same_features_together_and_one_by_one(model):
  generator = np.random.default_rng(2)
  planes = generator.integers(0, CODES, (6, 3, 4, 5)).astype(np.int32)
  latent = generator.integers(-30, 30, (6, 3, 4, 2)).astype(np.float32)
  embedded = model.embed(tf.constant(planes))
  together = model.features_of_known(latent, embedded)
  context = model.start_context(latent, 1, [3, 4])
  for k, level in enumerate(model.levels):
    np.testing.assert_array_equal(
      embedded[k], model.embeddings[level](planes[..., k])
    )
    np.testing.assert_array_equal(together[k], model.features(context, k))
    if k < len(model.context):
      context = model.add_context(context, k, embedded[k])


def test_an_independent_stack_coder_needs_as_many_bits(model):
  generator = np.random.default_rng(1)
  planes = generator.integers(0, CODES, (4 * GROUP, 3, 3, 5)).astype(np.int32)
  groups = np.split(planes, 4)
  theirs = AnsBitSwap(model)
  start = theirs.ans.num_bits()
  bits = []
  for group in groups:
    theirs.encode(group)
    bits.append(theirs.ans.num_bits() - start)
  for group in reversed(groups):
    np.testing.assert_array_equal(theirs.decode((GROUP, 3, 3)), group)
  assert theirs.ans.num_bits() == start

  coder = BitSwap(model)
  messages, seed = coder.encode(planes[np.newaxis], GROUP)
  ours = 8 * int(tf.strings.length(messages)[0] - seed[0])
  assert ours == pytest.approx(bits[-1], rel=0.02)
