"""Real CIFAR-100, small enough for two CPU cores.

    python -m ibdrr_tf.main --config=configs/cifar100_mini.py --data_dir=DIR \
      --method=upper_bound

The first 20 classes of order 1993 with all their 500 images: 10 base classes
and 5 phases of 2, ResNet-18 of width 16, 20 epochs a phase. With 20 classes at
once (`--phases=1`), upper_bound ends at 66 % after 15 minutes on two busy
cores; all five phases are about three times the work.

    python -m ibdrr_tf.codec train -o CODEC --config=configs/cifar100_mini.py \
      --data_dir=DIR --config.data.classes=100 --config.scenario.base_classes=50

trains a VQ-VAE on 50 base classes to 25.8 dB in 12 minutes, then Bit-Swap to
7.2 bits a code in 8 more.
"""

import ml_collections

from ibdrr_tf import config as defaults


def get_config() -> ml_collections.ConfigDict:
  """The small protocol on real CIFAR-100."""
  config = defaults.get_config()
  defaults.use_full_codec(config)
  config.dataset = "cifar100"
  config.data.classes = 20
  config.scenario.base_classes = 10
  config.scenario.phases = 5
  config.classifier.width = 16
  config.classifier.epochs = 20
  config.classifier.batch_size = 128
  return config
