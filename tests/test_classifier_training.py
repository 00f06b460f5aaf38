"""How a trained network looks at images."""

import numpy as np

from ibdrr_tf.classifier_training import Network
from ibdrr_tf.classifiers.classifier import build_classifier
from ibdrr_tf.data.examples import in_memory
from ibdrr_tf.random_seed import set_random_seed


def test_outputs_are_averaged_over_views():
  set_random_seed(0)
  classifier = build_classifier(
    backbone="resnet8", width=4, image_shape=(8, 8, 3), classes=3
  )
  generator = np.random.default_rng(0)
  images = generator.integers(0, 256, (5, 8, 8, 3), dtype=np.uint8)
  examples, flipped = (
    in_memory(view, np.zeros(5)) for view in (images, images[:, :, ::-1])
  )
  plain, both = Network(classifier, 4), Network(classifier, 4, views=2)
  sides = [plain.probabilities(view) for view in (examples, flipped)]
  assert np.abs(sides[0] - sides[1]).max() > 1e-3
  want = np.mean(sides, axis=0)
  np.testing.assert_allclose(both.probabilities(examples), want, atol=1e-6)
  want = np.mean([plain.features(v) for v in (examples, flipped)], axis=0)
  np.testing.assert_allclose(both.features(examples, 2), want, atol=1e-5)
  np.testing.assert_array_equal(
    both.features(examples), plain.features(examples)
  )
