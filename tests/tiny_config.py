"""A configuration whose networks learn next to nothing, in a second."""

import ml_collections

from ibdrr_tf import config as defaults


def tiny_config(method: str, exemplars: int) -> ml_collections.ConfigDict:
  """The demonstration's, with the smallest network, for one short epoch."""
  config = defaults.get_config()
  config.method = method
  config.classifier.backbone = "resnet8"
  config.classifier.width = 2
  config.classifier.epochs = 1
  config.classifier.batch_size = 8
  config.classifier.padding = 1
  config.memory.exemplars_per_class = exemplars
  return config
