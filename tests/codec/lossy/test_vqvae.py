"""The hierarchical VQ-VAE: shapes, training, several devices, storage."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from ibdrr_tf.codec.lossy import vqvae
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE
from ibdrr_tf.errors import UserError

SMALL = {
  "codebook_size": 16,
  "embedding": 8,
  "channels": 16,
  "residual_blocks": 1,
  "residual_channels": 8,
}


def pictures(n, h=16, w=16, seed=0):
  """Smooth random images: two colours blended along a diagonal."""
  rng = np.random.default_rng(seed)
  ends = rng.uniform(0, 255, size=(2, n, 1, 1, 3))
  ramp = np.add.outer(np.linspace(0, 0.5, h), np.linspace(0, 0.5, w))
  ramp = ramp[None, :, :, None]
  return (ends[0] * ramp + ends[1] * (1 - ramp)).astype(np.uint8)


def fit(model, images, steps, rate=3e-3, batch=16):
  model.compile(tf.keras.optimizers.Adam(rate))
  data = tf.data.Dataset.from_tensor_slices(images).repeat().batch(batch)
  return model.fit(data, steps_per_epoch=steps, verbose=0).history


def test_paper_architecture_has_the_papers_size():
  model = HierarchicalVQVAE(layout="paper")
  codebooks = 2 * 512 * 64
  weights = sum(np.prod(v.shape) for v in model.trainable_variables)
  assert 1.44e6 < weights + codebooks < 1.46e6


@pytest.mark.parametrize("layout", ["paper", "subpixel"])
@pytest.mark.parametrize("size", [(33, 47), (1, 1), (500, 375), (32, 32)])
def test_any_size_round_trips_in_shape(layout, size):
  model = HierarchicalVQVAE(layout=layout, bottom_depth=2, **SMALL)
  images = pictures(2, *size)
  top, bottom = model.encode(images)
  rows, columns = -(-size[0] // 8), -(-size[1] // 8)
  assert top.shape == (2, rows, columns, 1)
  assert bottom.shape == (2, 2 * rows, 2 * columns, 2)
  assert top.dtype == bottom.dtype == tf.int32
  decoded = model.decode(top, bottom)
  assert decoded.shape == (2, 8 * rows, 8 * columns, 3)
  assert decoded.dtype == tf.uint8
  assert model(images).shape == (2, *size, 3)


def test_padding_repeats_the_edge_and_keeps_the_image():
  images = pictures(1, 9, 8)
  padded = vqvae.pad_to_grid(images).numpy()
  assert padded.shape == (1, 16, 8, 3)
  np.testing.assert_array_equal(padded[:, :9], images)
  np.testing.assert_array_equal(padded[:, 9:], images[:, 8:].repeat(7, 1))


def test_psnr_is_the_mean_over_images():
  black = np.zeros([2, 4, 4, 3], np.uint8)
  other = black.copy()
  other[0] = 1
  np.testing.assert_allclose(
    vqvae.psnr(black, other), [20 * np.log10(255), 100], rtol=1e-5
  )


def test_reported_psnr_is_that_of_the_decoded_and_cropped_images():
  model = HierarchicalVQVAE(**SMALL)
  images = pictures(6, 13, 9)
  model.quantize(vqvae.pad_to_grid(images), training=True)
  model.compile(run_eagerly=True)
  logs = model.evaluate(images, batch_size=4, verbose=0, return_dict=True)
  decoded = model.decode(*model.encode(images))[:, :13, :9]
  np.testing.assert_allclose(
    logs["psnr"], np.mean(vqvae.psnr(images, decoded)), rtol=1e-4
  )
  assert 1 < logs["bottom_perplexity"] <= 16


@pytest.mark.parametrize(
  ("codebook", "layout"), [("ema", "subpixel"), ("gradient", "paper")]
)
def test_fit_learns(codebook, layout):
  model = HierarchicalVQVAE(codebook=codebook, layout=layout, **SMALL)
  images = pictures(256)
  start = model(images).numpy()
  history = fit(model, images, 60)
  assert set(history) == {
    "loss",
    "psnr",
    "top_perplexity",
    "bottom_perplexity",
  }
  decoded = model.decode(*model.encode(images))
  gain = vqvae.psnr(images, decoded) - vqvae.psnr(
    images, vqvae._to_uint8(start)
  )
  assert np.mean(gain) > 2
  assert history["bottom_perplexity"][0] > 4
  assert model.usages[1].histogram.numpy().sum() == 60 * 16 * 16


def test_one_model_serves_many_rates():
  """Without a top level, and with stages left out in training."""
  model = HierarchicalVQVAE(
    top_depth=0, bottom_depth=3, blank=True, stage_dropout=0.7, **SMALL
  )
  images = pictures(256)
  history = fit(model, images, 80)
  assert set(history) == {"loss", "psnr", "bottom_perplexity"}
  top, bottom = model.encode(images)
  assert top.shape == (256, 2, 2, 0)
  quality = []
  for detail in (100, 50, 0):
    threshold = model.bottom_quantizer.threshold(detail)
    coarse = model.coarsen(bottom, tf.fill([256], threshold))
    decoded = model.decode(top, coarse)
    quality.append(np.mean(vqvae.psnr(images, decoded)))
  assert np.all(np.array(coarse)[..., 1:] == 0)
  assert quality[0] > quality[1] > quality[2] > 15


def test_gradients_reach_every_network():
  model = HierarchicalVQVAE(**SMALL)
  images = pictures(4)
  with tf.GradientTape() as tape:
    loss = tf.reduce_sum(model._image_losses(images, training=True))
  for variable, gradient in zip(
    model.trainable_variables,
    tape.gradient(loss, model.trainable_variables),
    strict=True,
  ):
    assert gradient is not None, variable.name
    assert np.abs(gradient).max() > 0, variable.name


def test_feature_loss_is_weighted_in():
  def brightness(images, reconstructions):
    assert images.shape == reconstructions.shape == (4, 16, 16, 3)
    return tf.fill([4], 7.0)

  images = pictures(4)
  plain = HierarchicalVQVAE(**SMALL)
  aware = HierarchicalVQVAE(
    feature_loss=brightness, feature_weight=0.5, **SMALL
  )
  difference = aware._image_losses(images, False) - plain._image_losses(
    images, False
  )
  np.testing.assert_allclose(difference, [3.5] * 4, rtol=1e-5)


def test_training_repeats_from_the_seed():
  runs = []
  for seed in (3, 3, 4):
    model = HierarchicalVQVAE(seed=seed, **SMALL)
    # Eager, because tracing takes longer than three steps.
    model.compile(tf.keras.optimizers.Adam(1e-3), run_eagerly=True)
    for step in range(3):
      model.train_step(pictures(16, seed=step))
    runs.append(model.get_weights())
  for one, two in zip(*runs[:2], strict=True):
    np.testing.assert_array_equal(one, two)
  assert any(np.any(a != b) for a, b in zip(runs[0], runs[2], strict=True))


def test_all_ops_are_deterministic_on_gpus():
  """Runs ask for that, and TensorFlow then refuses `bincount` on GPUs."""
  model = HierarchicalVQVAE(seed=3, **SMALL)
  model.compile(tf.keras.optimizers.SGD(1e-3, jit_compile=False))
  images = tf.TensorSpec([4, 16, 16, 3], tf.uint8)
  for function in (model.train_step, model.test_step, model.encode):
    graph = tf.function(function).get_concrete_function(images).graph
    nested = [f.graph for f in graph._functions.values() if hasattr(f, "graph")]
    ops = {op.type for part in (graph, *nested) for op in part.get_operations()}
    assert "UnsortedSegmentSum" in ops or function == model.encode
    assert not {op for op in ops if "Bincount" in op}


def test_deeper_model_starts_where_the_shallow_one_ended():
  images = pictures(64)
  shallow = HierarchicalVQVAE(**SMALL)
  shallow.quantize(images, training=True)
  deep = HierarchicalVQVAE(bottom_depth=2, seed=9, **SMALL)
  deep.warm_start(shallow)
  _, before = shallow.quantize(images)
  _, after = deep.quantize(images)
  np.testing.assert_array_equal(after.indices[..., :1], before.indices)
  for _ in range(5):
    _, after = deep.quantize(images, training=True)
  last = after.commitment_loss - before.commitment_loss
  assert np.mean(last) < np.mean(before.commitment_loss)
  assert after.perplexity[1] > 4


def test_users_mistakes():
  with pytest.raises(UserError, match="'paper' or 'subpixel'"):
    HierarchicalVQVAE(layout="unet")
  one = HierarchicalVQVAE(**SMALL)
  other = HierarchicalVQVAE(**{**SMALL, "channels": 8})
  with pytest.raises(UserError, match="cannot be started from"):
    one.warm_start(other)


TWO_DEVICES = """
import numpy as np
import tensorflow as tf
from ibdrr_tf.codec.lossy.quantizer import VectorQuantizer
from ibdrr_tf.codec.lossy.vqvae import HierarchicalVQVAE

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
  cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def check_replicas(variables):
  for variable in variables:
    one, two = strategy.experimental_local_results(variable)
    assert one.device != two.device
    np.testing.assert_array_equal(one.numpy(), two.numpy())
    assert np.abs(one.numpy()).max() > 0

# 41 = 2 * 16 + 9: the last batch is split unevenly.
images = np.random.default_rng(0).integers(0, 255, [41, 8, 8, 3])
data = tf.data.Dataset.from_tensor_slices(images.astype(np.uint8)).batch(16)
with strategy.scope():
  model = HierarchicalVQVAE(
    codebook_size=32, embedding=8, channels=8, residual_blocks=1,
    residual_channels=8, bottom_depth=2)
  model.compile(tf.keras.optimizers.Adam(1e-3))
model.fit(data, epochs=2, verbose=0)
for layer in model.quantizers:
  check_replicas([*layer.codebooks, layer.usage, layer.sums])
  assert layer.step.numpy() == 6
check_replicas([model.to_top.kernel])

# The gradient form: what moves the codebook outside the optimizer.
with strategy.scope():
  layer = VectorQuantizer(32, 3, codebook="gradient", restart_below=0.9)
  layer.build(tf.TensorShape([None, None, None, 3]))
@tf.function
def learn(batch):
  layer(tf.cast(batch, tf.float32), training=True)
for batch in strategy.experimental_distribute_dataset(data):
  strategy.run(learn, [batch])
check_replicas([*layer.codebooks, layer.usage])
print("identical")
"""


def test_two_devices_hold_identical_codebooks():
  # Logical devices must be configured before TensorFlow starts.
  result = subprocess.run(
    [sys.executable, "-c", TWO_DEVICES], capture_output=True, text=True
  )
  assert result.stdout.strip().endswith("identical"), result.stderr[-2000:]
