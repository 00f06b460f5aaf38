"""The embedded demonstration; what runs without `--config`.

    python -m ibdrr_tf.main --config=configs/demo.py

Generated 32x32 images of 20 classes, 10 base classes and 5 phases of 2, with
ResNet-18 of width 8; the codec goes on from the one of CIFAR-100 that the
package has. Four minutes on two CPU cores, more on busy ones; the average
without the base phase is 40 % (`--method=finetune` 10 % in a minute or two,
`--method=upper_bound` 63 % in five; other machines, which round otherwise, may
differ by tens of points: results/demo.md).
"""

from ibdrr_tf.config import demo_config as get_config

__all__ = ["get_config"]
