"""The embedded demonstration; what runs without `--config`.

    python -m ibdrr_tf.main --config=configs/demo.py

Generated 32x32 images of 20 classes, 10 base classes and 5 phases of 2, with
ResNet-18 of width 8. Two minutes on two CPU cores; the average accuracy without
the base phase is 58 % (`--method=finetune` 13 %, `--method=upper_bound` 73 % in
five minutes).
"""

from ibdrr_tf.config import get_config

__all__ = ["get_config"]
