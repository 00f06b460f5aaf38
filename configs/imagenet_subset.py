"""100 classes of ImageNet through a codec that has seen CIFAR-100 only.

    python -m ibdrr_tf.main --config=configs/imagenet_subset.py --data_dir=DIR

As in the paper: 50 base classes and 5 phases of 10, images of 224 pixels,
ResNet-18 of width 64, a VQ-VAE of depth 1 that was trained on CIFAR-100, and
lambda .005; Bit-Swap is fitted to the new codes. `DIR` holds `train/<class>/*`
and `val/<class>/*`. Needs a GPU. The paper's DRR averages 78.05 % over the five
phases; no figure of this file has been measured here. The same path at a size
that two CPU cores can do is `configs/folder.py` with `--codec=cifar100`.
"""

import ml_collections

from ibdrr_tf import config as defaults


def get_config() -> ml_collections.ConfigDict:
  """The paper's second data set."""
  config = defaults.get_config()
  defaults.use_full_recipe(config)
  config.dataset = "folder"
  config.codec = "cifar100_depth1"
  config.ib.weight = 0.005
  config.data.image_size = 224
  config.data.classes = 100
  config.scenario.base_classes = 50
  config.classifier.stem = "large"
  config.classifier.width = 64
  config.classifier.epochs = 100
  config.classifier.batch_size = 128
  config.classifier.padding = 28
  # 128,856 images of 224 pixels are 19 GB; their codes fit.
  config.replay.cache = "codes"
  config.bitswap.batch_size = 8  # an image has 49 times as many codes
  return config
