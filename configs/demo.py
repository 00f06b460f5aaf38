"""The embedded demonstration; what runs without `--config`.

    python -m ibdrr_tf.main --config=configs/demo.py

Generated 32x32 images of 20 classes, 10 base classes and 5 phases of 2, with
ResNet-18 of width 8; the codec goes on from the one of CIFAR-100 that the
package has. Eight minutes on two CPU cores, more on slow ones; the average
without the base phase is 49 % (`--method=finetune` 13 % in a minute,
`--method=upper_bound` 73 % in five).
"""

from ibdrr_tf.config import get_config

__all__ = ["get_config"]
