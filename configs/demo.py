"""The embedded demonstration; what runs without `--config`.

    python -m ibdrr_tf.main --config=configs/demo.py

Generated 32x32 images of 20 classes, 10 base classes and 5 phases of 2, with
ResNet-18 of width 8; the codec `tiny_imagenet` comes with the package. Five
minutes on two CPU cores; `ib_drr` ends with 92 % of 20 classes, `finetune` with
10 % (results/demo.md).
"""

from ibdrr_tf.config import demo_config as get_config

__all__ = ["get_config"]
