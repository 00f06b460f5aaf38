"""Names that are known before TensorFlow is imported mean something after."""

from ibdrr_tf import choices
from ibdrr_tf.bench import kinds, options
from ibdrr_tf.classifiers import resnet
from ibdrr_tf.methods import METHODS
from ibdrr_tf.replay import sheets

# Other tests register methods of their own.
BUILT_IN = set(METHODS), set(choices.METHODS)


def test_every_name_has_its_method_backbone_or_measurement():
  assert BUILT_IN[0] == BUILT_IN[1]
  assert set(resnet.BACKBONES) == set(choices.FEATURES)
  assert tuple(kinds.KINDS) == options.KINDS
  assert tuple(sheets.FORMATS) == choices.SHEETS
