"""The paper's baselines on CIFAR-100; needs a GPU.

    python -m ibdrr_tf.main --config=configs/cifar100_baselines.py:lucir \
      --data_dir=DIR --phases=5

50 base classes, then 5, 10 or 25 phases, 20 raw exemplars a class. After the
colon stands one of

    lwf, icarl, lucir, mnemonics    ResNet-32, 160 epochs a phase (IB-DRR's)
    wa, podnet, mrdc, der           the same
    lwf_pycil, icarl_pycil          ResNet-32, PyCIL's epochs
    icarl_original                  the sigmoid loss of its paper, 70 epochs
    gfr                             ResNet-18, 201 epochs of Adam

Published averages over 5 phases: LUCIR 63.2 %, Mnemonics 63.3 %, PODNet 64.8 %
and DER (ResNet-18) 72.6 % with the base phase; GFR 60.18 % and Mnemonics
60.76 % without it. Nothing of this file has been measured on a CPU;
`configs/cifar100_mini.py` with `--method=lucir` is what two cores can do.
"""

import ml_collections

from ibdrr_tf import config as defaults
from ibdrr_tf.errors import UserError

# Methods whose own sections have all that they need.
_PLAIN = ("lwf", "icarl", "lucir", "mnemonics", "wa", "podnet", "mrdc", "der")


def get_config(variant: str = "lucir") -> ml_collections.ConfigDict:
  """The recipe of one baseline.

  Args:
    variant: a name of the list above.
  """
  config = defaults.get_config()
  config.dataset = "cifar100"
  config.scenario.base_classes = 50
  config.classifier.backbone = "resnet32"
  config.classifier.width = 16
  config.classifier.epochs = 160
  config.classifier.batch_size = 128
  config.method = variant.split("_")[0]
  if variant == "lwf_pycil":
    config.lwf.base.epochs = 200
    config.lwf.increment.epochs = 250
  elif variant == "icarl_pycil":
    config.icarl.base.epochs = 200
    config.icarl.increment.epochs = 170
  elif variant == "icarl_original":
    config.icarl.loss = "sigmoid"
    for schedule in (config.icarl.base, config.icarl.increment):
      schedule.epochs = 70
      schedule.learning_rate = 2.0
      schedule.weight_decay = 1e-5
      schedule.milestones = (49 / 70, 63 / 70)
      schedule.decay_factor = 5.0
  elif variant == "gfr":
    config.classifier.backbone = "resnet18"
    config.classifier.width = 64
    config.classifier.epochs = 201
  elif variant not in _PLAIN:
    raise UserError(
      f"configs/cifar100_baselines.py has no variant {variant!r}: choose from "
      f"{', '.join(_PLAIN)}, lwf_pycil, icarl_pycil, icarl_original, gfr."
    )
  return config
