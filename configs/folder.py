"""Your own images: one folder a class.

    python -m ibdrr_tf.main --config=configs/folder.py --data_dir=DIR \
      --config.data.image_size=64 --codec=cifar100

`DIR` holds `train/<class>/*` and `val/<class>/*` (or `test/<class>/*`) with
JPEG, PNG or WebP files. Half of the classes are base classes; `--phases` must
divide the other half. Without `--codec` one is trained on the base classes.
Twenty classes of 200 images at 64 pixels took an hour and three quarters on one
CPU core, codec included, and 43 % of Tiny-ImageNet's test images were right on
average: by the paper's steps in float32 (results/README.md), not yet by the
one-cycle recipe of today.
"""

import ml_collections

from ibdrr_tf import config as defaults


def get_config() -> ml_collections.ConfigDict:
  """An image folder, with the short recipe of the small protocol."""
  config = defaults.get_config()
  defaults.use_full_recipe(config)
  config.dataset = "folder"
  config.precision = "auto"
  defaults.use_one_cycle(config, epochs=20)
  config.classifier.width = 16
  config.classifier.batch_size = 64
  return config
