import gc
import os

import ibdrr_tf  # noqa: F401 - before TensorFlow, which it sets up

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# A test builds graphs of many small objects, few of which are garbage. Python
# would look through all of them again and again.
gc.set_threshold(200_000, 50, 100)
