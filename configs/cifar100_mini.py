"""Real CIFAR-100, small enough for two CPU cores.

    python -m ibdrr_tf.main --config=configs/cifar100_mini.py --data_dir=DIR \
      --codec=cifar100 --method=ib_drr

The first 20 classes of order 1993 with all their 500 images: 10 base classes
and 5 phases of 2, ResNet-18 of width 16, at least 1,500 updates a phase on 64
images each, in one cycle, bfloat16 where the CPU has it. All methods get equal
training, however many images they keep. About 25 minutes on one core.

The records in results/mini/records are of an earlier recipe:

    --config.classifier.epochs=20 --config.classifier.updates=0 \
    --config.classifier.batch_size=128 --config.classifier.schedule=steps \
    --config.classifier.learning_rate=0.1 --config.precision=float32

and those in results/mini/one_megabyte of another one:

    --config.classifier.width=12 --config.classifier.epochs=12 \
    --config.classifier.updates=0 --config.classifier.batch_size=128 \
    --config.precision=bfloat16

`--codec=cifar100` takes the codec that comes with the package. It was trained,
without labels, on the 50 base classes of the full protocol, all of these 20
among them; without it the run trains one on its own 10 base classes, for which
`--config.vqvae.epochs=90` makes up for there being fewer images.

    C="--config=configs/cifar100_mini.py --data_dir=DIR"
    B="--config.data.classes=100 --config.scenario.base_classes=50"
    python -m ibdrr_tf.codec train -o runs/d1 $C $B \
      --config.vqvae.bottom_depth=1
    python -m ibdrr_tf.codec train -o runs/d2 $C $B \
      --config.vqvae.start_from=runs/d1 --config.vqvae.epochs=10 \
      --config.vqvae.learning_rate=2e-3

made the codecs `cifar100_depth1` (25.8 dB, 7.0 bits a code) and `cifar100`
(28.7 dB, 7.4 bits), in half an hour each.
"""

import ml_collections

from ibdrr_tf import config as defaults


def get_config() -> ml_collections.ConfigDict:
  """The small protocol on real CIFAR-100."""
  config = defaults.get_config()
  defaults.use_full_recipe(config)
  config.dataset = "cifar100"
  config.data.classes = 20
  config.scenario.base_classes = 10
  config.scenario.phases = 5
  config.precision = "auto"
  # As many epochs as the updates take.
  defaults.use_one_cycle(config, epochs=1)
  config.classifier.updates = 1500
  config.classifier.width = 16
  config.classifier.batch_size = 64
  return config
