"""Exactness of the lossless stage: everywhere, always, or a clear error."""

import functools
import hashlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import (
  bit_swap_file,
  chain,
  code_codec,
  code_tree,
  integer,
  message,
  static,
)
from ibdrr_tf.codec.lossless import planes as planes_module
from ibdrr_tf.codec.lossless.bit_swap import BitSwap
from ibdrr_tf.codec.lossless.bit_swap_model import BitSwapModel
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
from ibdrr_tf.errors import UserError
from ibdrr_tf.random_seed import set_random_seed

CODES = 16
# Chains that several tests share a codec for.
SHORT = {"chain_images": 5, "group": 4, "parallel": 2}


def make_model(depths=(1, 1), latents=2, seed=0, noise=0.2, **options):
  """A random model; with noise on every weight, so that all of them matter."""
  generator = np.random.default_rng(seed)
  trees = [
    code_tree.make_tree(generator.normal(size=(CODES, 4)))
    for _ in range(sum(depths))
  ]
  model = BitSwapModel(
    trees,
    *depths,
    latents=latents,
    **({"width": 16, "blocks": 1, "embedding": 6} | options),
  )
  for variable in model.trainable_variables if noise else ():
    value = generator.normal(size=variable.shape) * noise
    variable.assign(np.rint(value * 128) / 128)
  return model


# Building their graphs takes longer than what most tests do with them.
coder_of = functools.cache(BitSwap)


@functools.cache
def make_codec(model, **options):
  data = bit_swap_file.to_bytes(model)
  return CodeCodec(
    coder_of(model),
    model_file.fingerprint(data),
    model.get_config()["top_depth"],
    model.get_config()["bottom_depth"],
    **options,
  )


def random_codes(generator, count, grid, depths=(1, 1)):
  height, width = grid
  top = generator.integers(0, CODES, (count, height, width, depths[0]))
  shape = (count, 2 * height, 2 * width, depths[1])
  return top, generator.integers(0, CODES, shape)


def assert_same(got, want):
  np.testing.assert_array_equal(got[0], want[0])
  np.testing.assert_array_equal(got[1], want[1])


@pytest.fixture(scope="module")
def model():
  return make_model()


def test_a_thousand_random_shapes(model):
  """Groups, chain lengths and grids of all kinds, by one property.

  All codes come back, and what lies below a chain, here the seed, is restored
  byte for byte.
  """
  coder = coder_of(model)
  generator = np.random.default_rng(7)
  seed = message.seed_bytes(tf.constant(1 << 16)).numpy()
  tried = 0
  while tried < 1000:
    chains, images = (
      int(generator.integers(1, 9)),
      int(generator.integers(1, 25)),
    )
    grid = generator.integers(1, 4, 2)
    group = int(generator.integers(1, 12))
    kind = generator.integers(0, 4)
    planes = generator.integers(0, CODES, (chains, images, *grid, 5))
    if kind == 0:
      planes[:] = planes[0, 0, 0, 0, 0]  # Constant data.
    planes = planes.astype(np.int32)
    messages, kept = coder.encode(planes, group)
    back, left = coder.decode(messages, images, grid.astype(np.int32), group)
    np.testing.assert_array_equal(back, planes)
    assert left.numpy().tolist() == [seed[:k] for k in kept.numpy()]
    tried += chains


@pytest.mark.parametrize(
  ("depths", "latents", "grid"),
  [
    ((1, 1), 8, (2, 2)),
    ((2, 2), 1, (1, 3)),
    ((1, 3), 3, (2, 1)),
    ((1, 1), 0, (2, 3)),
    ((0, 2), 0, (2, 2)),
    ((0, 1), 2, (1, 2)),
  ],
)
def test_depths_and_chains_of_latents(depths, latents, grid):
  """Eight latents are the paper's setting; depth is the rate's dial."""
  codec = make_codec(make_model(depths, latents), chain_images=11, group=4)
  codes = random_codes(np.random.default_rng(1), 25, grid, depths)
  assert_same(codec.decompress(codec.compress(*codes)), codes)


def nested(generator, count, grid, depth):
  """Codes of a bottom level whose places end in blank codes, or do not."""
  height, width = grid
  shape = (count, 2 * height, 2 * width, depth)
  bottom = generator.integers(1, CODES, shape)
  kept = generator.integers(1, depth + 1, shape[:3])
  bottom *= np.arange(depth) < kept[..., np.newaxis]
  return np.zeros((count, height, width, 0), int), bottom


@pytest.mark.parametrize("latents", [0, 2])
def test_what_follows_a_blank_code_is_free(latents):
  depths, generator = (0, 4), np.random.default_rng(3)
  free, paid = (
    make_model(depths, latents, blank=blank) for blank in (True, False)
  )
  codes = nested(generator, 30, (2, 3), 4)
  sizes = []
  for model in (free, paid):
    codec = make_codec(model, chain_images=11, group=4)
    chains = codec.compress(*codes)
    assert_same(codec.decompress(chains), codes)
    sizes.append(sum(map(len, chains)))
  # A third of these codes follow blanks; latents cost some bits of their own.
  assert sizes[0] < 0.9 * sizes[1]
  # Codes that break the rule cost more, and come back all the same.
  others = random_codes(generator, 9, (2, 3), depths)
  codec = make_codec(free, chain_images=11, group=4)
  assert_same(codec.decompress(codec.compress(*others)), others)


@pytest.mark.parametrize("blank", [False, True])
def test_lengths_are_those_that_training_counts(blank):
  model = make_model((0, 4), latents=0, blank=blank)
  codes = nested(np.random.default_rng(5), 400, (2, 2), 4)
  planes = planes_module.to_planes(*(tf.constant(c, tf.int32) for c in codes))
  want = float(tf.reduce_sum(model.elbo_bits(planes)[0])) / 8
  chains = make_codec(model).compress(*codes)
  assert sum(map(len, chains)) == pytest.approx(want, rel=0.02)


@pytest.mark.parametrize("stride", [2, 4])
def test_latents_on_a_coarser_grid(stride):
  """Grids that the stride does not divide, too."""
  model = make_model(latents=3, latent_stride=stride)
  codec = make_codec(model, chain_images=13, group=5)
  for grid in ((4, 4), (3, 5), (1, 2)):
    drawn = model.posterior(0, model.embed(tf.zeros([2, *grid, 5], tf.int32)))
    assert drawn.location.shape[1:3] == [-(-side // stride) for side in grid]
    codes = random_codes(np.random.default_rng(8), 30, grid)
    assert_same(codec.decompress(codec.compress(*codes)), codes)


@pytest.mark.parametrize("stride", [1, 4])
def test_large_grids_and_single_images(stride):
  """28x28 + 56x56 are the codes of an image of 224 pixels."""
  codec = make_codec(make_model(latent_stride=stride), group=3)
  codes = random_codes(np.random.default_rng(2), 10, (28, 28))
  assert_same(codec.decompress(codec.compress(*codes)), codes)
  one = codes[0][:1], codes[1][:1]
  assert_same(codec.decompress(codec.compress(*one)), one)
  assert codec.compress(codes[0][:0], codes[1][:0]) == []


def test_large_images_are_coded_a_few_at_a_time(model, monkeypatch):
  """A bound in places, of which no decoder needs to know."""
  codes = random_codes(np.random.default_rng(4), 23, (3, 4))
  usual = CodeCodec(coder_of(model), b"12345678", chain_images=10, group=8)
  want = usual.compress(*codes)
  monkeypatch.setattr(code_codec, "_PLACES", 40)
  few = CodeCodec(coder_of(model), b"12345678", chain_images=10, group=8)
  chains = few.compress(*codes)
  opened = chain.open_chains(tf.constant(chains), 5, tf.constant([b"12345678"]))
  assert opened.group.numpy().tolist() == [3, 3, 3]  # 40 // 12
  assert_same(usual.decompress(chains), codes)
  assert_same(few.decompress(want), codes)


def test_images_whose_latents_the_seed_cannot_feed():
  """46 x 45 places of 16 latents read more than 64 kB before any is written."""
  model = make_model(latents=1, latent_channels=16)
  codes = random_codes(np.random.default_rng(5), 1, (46, 45))
  with pytest.raises(UserError, match="images are too large for this model"):
    make_codec(model).compress(*codes)
  planes = np.random.default_rng(5).integers(0, CODES, (9, 2, 2, 5))
  tables = static.count_tables(planes, CODES, 1, 1, per_position=False)
  both = CodeCodec(coder_of(model), b"12345678", static=(tables, b"abcdefgh"))
  (string,) = both.compress(*codes)
  assert string[1:9] == b"abcdefgh"
  assert_same(both.decompress([string]), codes)


def test_what_are_no_codes_is_refused(model):
  codec = make_codec(model, **SHORT)
  top, bottom = random_codes(np.random.default_rng(6), 3, (2, 2))
  for wrong in (CODES, -1):
    bottom[1, 3, 2] = wrong
    with pytest.raises(UserError, match="numbers outside the codebook"):
      codec.compress(top, bottom)
  with pytest.raises(UserError, match=r"\[2, 2, 1\].*n, h, w, depth"):
    codec.compress(top[0], bottom[0])


def test_any_chain_decodes_alone(model):
  codec = make_codec(model, **SHORT)
  top, bottom = random_codes(np.random.default_rng(3), 18, (2, 2))
  chains = codec.compress(top, bottom)
  assert len(chains) == 4
  assert_same(codec.decompress([chains[2]]), (top[10:15], bottom[10:15]))
  assert_same(codec.decompress(chains[2:]), (top[10:], bottom[10:]))


def test_chains_that_are_swapped_or_missing_are_found(model):
  codec = make_codec(model, **SHORT)
  top, bottom = random_codes(np.random.default_rng(3), 20, (2, 2))
  one, two, three, four = codec.compress(top, bottom)
  for mixed in ([two, one, three, four], [one, three], [one, one], [four, one]):
    with pytest.raises(UserError, match="mixed up or missing"):
      codec.decompress(mixed)


def smooth_planes(generator, count):
  """Codes that depend on a hidden number of each image, and on each other."""
  hidden = generator.integers(0, 12, (count, 1, 1, 1))
  steps = generator.integers(0, 3, (count, 4, 4, 5))
  return (hidden + np.cumsum(steps, axis=-1) // 2).clip(0, 15).astype(np.int32)


@pytest.fixture(scope="module")
def trained():
  """A model that has learned what such codes look like, and that it helps."""
  set_random_seed(0)
  model = make_model(noise=0.0)
  model.compile(tf.keras.optimizers.Adam(3e-3))
  planes = smooth_planes(np.random.default_rng(0), 2000)
  data = tf.data.Dataset.from_tensor_slices(planes).repeat().batch(50)
  history = model.fit(data, epochs=3, steps_per_epoch=100, verbose=0).history
  assert history["bits_per_code"][-1] < 0.8 * history["bits_per_code"][0]
  return model


def test_length_is_the_elbo_and_little_more(trained):
  """Over long chains: the frozen model's ELBO, by another route.

  `elbo_bits` draws its own latents and never touches a table or the coder.
  """
  planes = smooth_planes(np.random.default_rng(1), 2000)
  planes = planes.reshape(2, 1000, 4, 4, 5)
  messages, seed = coder_of(trained).encode(planes, 64)
  bits = 8 * (tf.strings.length(messages) - seed).numpy().sum()
  elbo = sum(
    float(tf.reduce_sum(trained.elbo_bits(chain)[0])) for chain in planes
  )
  # These codes have less than two bits each, so what a group costs shows.
  assert 0.985 * elbo < bits < 1.03 * elbo
  # And it is worth it: order 0 needs more.
  share = np.bincount(planes.ravel()) / planes.size
  assert bits < -0.9 * planes.size * (share * np.log2(share + 1e-12)).sum()


def test_stored_models_code_the_same(model):
  data = bit_swap_file.to_bytes(model)
  loaded = bit_swap_file.from_bytes(data)
  assert bit_swap_file.to_bytes(loaded) == data
  codes = random_codes(np.random.default_rng(5), 9, (2, 2))
  assert make_codec(loaded, **SHORT).compress(*codes) == make_codec(
    model, **SHORT
  ).compress(*codes)
  with pytest.raises(UserError, match="Bit-Swap model is damaged"):
    bit_swap_file.from_bytes(data[:-20] + b"\0" + data[-19:])
  with pytest.raises(UserError, match="IBBS"):
    bit_swap_file.from_bytes(b"GIF89a....")


def test_a_model_is_stored_only_if_all_its_sums_are_exact():
  """Each part of a sum is small enough; together they are not."""
  model = make_model(noise=0.0, width=64, embedding=40)
  for conv in (*model.context, *model.from_latent):
    conv.kernel.assign(tf.ones_like(conv.kernel))
    integer.check_exact("one of them", conv.bound())
  with pytest.raises(UserError, match="the sums of context can reach"):
    bit_swap_file.to_bytes(model)


def test_every_changed_byte_is_found(model):
  codec = make_codec(model, **SHORT)
  codes = random_codes(np.random.default_rng(6), 3, (2, 2))
  (chain,) = codec.compress(*codes)
  for place in range(len(chain)):
    for change in (1, 0x80, 0xFF):
      damaged = bytearray(chain)
      damaged[place] ^= change
      with pytest.raises(UserError, match="chain"):
        codec.decompress([bytes(damaged)])
  for length in range(len(chain)):
    with pytest.raises(UserError, match="chain"):
      codec.decompress([chain[:length]])
  with pytest.raises(UserError, match="damaged"):
    codec.decompress([chain + b"\0"])


def test_wrong_models_and_mixed_up_chains_are_named(model):
  codec = make_codec(model, **SHORT)
  other = make_codec(make_model(seed=1))
  codes = random_codes(np.random.default_rng(8), 4, (2, 2))
  with pytest.raises(UserError, match="another model"):
    other.decompress(codec.compress(*codes))
  deeper = make_codec(make_model((1, 2)))
  with pytest.raises(UserError, match="another model"):
    deeper.decompress(codec.compress(*codes))


GOLDEN = "fe974bbe7bf4ac34"

# What another process does: it gets the model's bytes and the chains, under
# settings that change how float networks round.
_DECODE = """
import sys
import numpy as np
import tensorflow as tf
threads, eager, xla = (int(v) for v in sys.argv[2:5])
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(threads)
if eager:
  tf.config.run_functions_eagerly(True)
if xla:
  tf.config.optimizer.set_jit("autoclustering")
from ibdrr_tf.codec import model_file
from ibdrr_tf.codec.lossless import bit_swap_file
from ibdrr_tf.codec.lossless.bit_swap import BitSwap
from ibdrr_tf.codec.lossless.code_codec import CodeCodec
files = np.load(sys.argv[1])
data = files["model"].tobytes()
coder = BitSwap(bit_swap_file.from_bytes(data))
codec = CodeCodec(coder, model_file.fingerprint(data), parallel=threads)
chains = np.split(files["chains"], files["ends"][:-1])
top, bottom = codec.decompress([chain.tobytes() for chain in chains])
np.testing.assert_array_equal(top, files["top"])
np.testing.assert_array_equal(bottom, files["bottom"])
print("the same")
"""


@pytest.fixture(scope="module")
def encoded(tmp_path_factory):
  """Chains of a wider model, on disk, for other processes."""
  model = make_model(width=48, blocks=2, embedding=16, latent_stride=2)
  codec = make_codec(model, chain_images=20, group=8)
  top, bottom = random_codes(np.random.default_rng(9), 50, (4, 4))
  chains = codec.compress(top, bottom)
  path = tmp_path_factory.mktemp("encoded") / "chains.npz"
  np.savez(
    path,
    model=np.frombuffer(bit_swap_file.to_bytes(model), np.uint8),
    chains=np.frombuffer(b"".join(chains), np.uint8),
    ends=np.cumsum([len(chain) for chain in chains]),
    top=top,
    bottom=bottom,
  )
  return path, chains


@pytest.mark.parametrize(
  ("onednn", "threads", "eager", "xla"),
  [(1, 1, 0, 0), (0, 2, 0, 0), (0, 1, 1, 0), (1, 2, 0, 1)],
)
def test_other_processes_decode_exactly(encoded, onednn, threads, eager, xla):
  path, _ = encoded
  result = subprocess.run(
    [
      sys.executable,
      "-c",
      _DECODE,
      str(path),
      str(threads),
      str(eager),
      str(xla),
    ],
    capture_output=True,
    text=True,
    timeout=300,
    check=False,
    env={
      "TF_ENABLE_ONEDNN_OPTS": str(onednn),
      "TF_CPP_MIN_LOG_LEVEL": "3",
      "PATH": "/usr/bin:/bin",
      # Lets XLA take part on the CPU.
      "TF_XLA_FLAGS": "--tf_xla_cpu_global_jit" if xla else "",
    },
  )
  assert result.returncode == 0, result.stderr
  assert "the same" in result.stdout


def test_golden_strings(encoded):
  """The format cannot drift unnoticed: a change here needs a new version."""
  _, chains = encoded
  assert hashlib.sha256(b"".join(chains)).hexdigest()[:16] == GOLDEN
