"""Continual learning that remembers every image as a bit-string (IB-DRR).

The package is laid out along the flow of the data:

    images -> codes -> bit-strings -> memory -> tf.data -> classifier -> report

`data` gives images, `codec` turns them into bit-strings and back, `replay`
keeps and replays them, `classifiers` and `methods` learn from them, and
`evaluation` says how well. `experiment` runs the phases, `main` is the command.
"""

import os

__version__ = "0.1.0"

# TensorFlow 2.14 takes oneDNN's convolutions by itself only on CPUs with
# AVX512-VNNI. On an AMD EPYC without it, its own ones trained a ResNet-18 two
# to four times slower. Works only before TensorFlow is imported.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
