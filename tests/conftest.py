import os

import ibdrr_tf  # noqa: F401 - before TensorFlow, which it sets up

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
