"""The paper's task on CIFAR-100, all 100 classes, for two CPU cores.

    python -m ibdrr_tf.main --config=configs/cifar100_small.py --data_dir=DIR \
      --method=drr --codec=tiny_imagenet --phases=5

50 base classes, then 5, 10 or 25 phases, all 50,000 images, class order 1993,
as in the paper; ResNet-18 of width 16 instead of 64, and 12 epochs in one cycle
instead of 200. An epoch of all phases shows 225,000 images (5 phases), so
training takes 50 minutes at the 900 images/s of two quiet cores with bfloat16;
that time is reckoned, and no accuracy has been measured yet. The codec
`tiny_imagenet` has never seen CIFAR-100.
"""

import ml_collections

from ibdrr_tf import config as defaults


def get_config() -> ml_collections.ConfigDict:
  """The paper's protocol with a narrow network and the fast recipe."""
  config = defaults.get_config()
  defaults.use_full_recipe(config)
  config.dataset = "cifar100"
  config.scenario.base_classes = 50
  config.scenario.phases = 5
  config.precision = "auto"
  defaults.use_one_cycle(config, epochs=12)
  config.classifier.width = 16
  config.classifier.batch_size = 128
  return config
