"""Images that a memory shows, and the originals that they came from."""

import numpy as np
import pytest
from tiny_config import tiny_config
from tiny_step import Steps, TinyCodecs, make_examples, make_tasks, pixels

from ibdrr_tf.data.examples import concatenate
from ibdrr_tf.evaluation.recalled import Recalled, psnr
from ibdrr_tf.replay.codec import decode_images
from ibdrr_tf.replay.originals import with_originals

COUNTS = {0: 9, 1: 6}, {2: 5}


def kept_steps(name, folder, codecs=None):
  """The steps of a method, their tasks, and the same opened anew."""
  config = tiny_config(name, 3)
  config.memory.quality = 90
  steps, tasks = Steps(config, folder, codecs), make_tasks(*COUNTS)
  for task in tasks:
    steps.keep(task)
  return steps, tasks, Steps(config, folder, codecs, step=1)


def assert_bytes_add_up(memory, recalled):
  """Mean bytes of the classes, times their images, are the payload."""
  stored = memory.stored_bytes()
  most = 3 if "exemplars" in memory.folder.parts else 9
  total = sum(
    recalled.bytes_of[label] * min(count, most)
    for counts in COUNTS
    for label, count in counts.items()
  )
  line = stored.get("payload") or memory.folder.parts["exemplars"]["payload"]
  assert total == pytest.approx(line)


@pytest.mark.parametrize("name", ["sheet_replay", "webp_replay", "raw_replay"])
def test_images_of_files_have_their_originals(tmp_path, name):
  _, tasks, steps = kept_steps(name, tmp_path)
  recalled = steps.memory.sample([0, 2], 2)
  assert recalled.labels.tolist() == [0, 0, 2, 2]
  everything = concatenate([task.new for task in tasks])
  found = with_originals(recalled, everything)
  for label, image, original in zip(
    found.labels, found.images, found.originals, strict=True
  ):
    of_class = pixels(everything)[everything.labels == label]
    # The original of its class that is nearest, pixel by pixel.
    near = [psnr(one, image) for one in of_class]
    np.testing.assert_array_equal(of_class[np.argmax(near)], original)
    assert max(near) > 25
  assert len({original.tobytes() for original in found.originals}) == 4
  if name == "raw_replay":
    np.testing.assert_array_equal(found.images, found.originals)
  assert_bytes_add_up(steps.memory, recalled)


def test_images_of_codes_come_from_ram_and_disk_alike(tmp_path):
  codecs = TinyCodecs()
  steps, _, again = kept_steps("drr", tmp_path, codecs)
  codes = again.memory.read()
  first = [np.flatnonzero(codes.labels == k)[n] for k in (1, 2) for n in (0, 1)]
  want = decode_images(codecs.vqvae, codes.take(np.array(first)), (16, 16))
  anew = kept_steps("drr", tmp_path / "other", codecs)[2]
  for memory in (steps.memory, again.memory, anew.memory):
    recalled = memory.sample([1, 2], 2)
    assert recalled.labels.tolist() == [1, 1, 2, 2]
    np.testing.assert_array_equal(recalled.images, want)
    assert_bytes_add_up(memory, recalled)


@pytest.mark.parametrize("name", ["finetune", "latent_replay"])
def test_a_memory_without_images_shows_none(tmp_path, name):
  steps = kept_steps(name, tmp_path)[2]
  assert steps.memory.sample([0, 1], 2) is None


def test_originals_are_found_whatever_the_order():
  examples = make_examples({0: 20, 1: 20}, (0,))
  images = pixels(examples)
  order = np.argsort(examples.labels, kind="stable")[::-1][::3]
  noise = np.random.default_rng(0).normal(0, 12, images[order].shape)
  noisy = np.clip(images[order] + noise, 0, 255).astype(np.uint8)
  recalled = Recalled(examples.labels[order], noisy, None, {})
  found = with_originals(recalled, examples)
  np.testing.assert_array_equal(found.originals, images[order])
