"""The embedded demonstration; what runs without `--config`.

    python -m ibdrr_tf.main --config=configs/demo.py

Generated 32x32 images of 20 classes, 10 base classes and 5 phases of 2.
"""

from ibdrr_tf.config import get_config

__all__ = ["get_config"]
