"""A configuration whose networks learn next to nothing, in a second."""

import os

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


def tiny_learner_config(
  codec: str | os.PathLike[str], method: str = "drr"
) -> ml_collections.ConfigDict:
  """A step of a learner takes a second or two."""
  config = defaults.learner_config()
  config.method = method
  config.codec = str(codec)
  config.classifier.backbone = "resnet8"
  config.classifier.width = 2
  config.classifier.epochs = 1
  config.classifier.updates = 0
  config.classifier.batch_size = 8
  config.classifier.padding = 1
  config.bitswap.refit = "never"
  config.bitswap.fine_tune_epochs = 1
  config.memory.exemplars_per_class = 3
  config.gfr.generator_epochs = 2
  config.gfr.generator_batch_size = 8
  config.gfr.hidden = 8
  config.gfr.noise = 4
  config.gfr.views = 1
  config.ewc.images = 5
  config.aqm.widths = (4, 6)
  config.aqm.entries = 16
  config.aqm.coder_epochs = 1
  config.aqm.coder_updates = 1
  return config
