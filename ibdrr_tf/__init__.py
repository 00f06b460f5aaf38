"""Continual learning that remembers every image as a bit-string (IB-DRR).

The package is laid out along the flow of the data:

    images -> codes -> bit-strings -> memory -> tf.data -> classifier -> report

`data` gives images, `codec` turns them into bit-strings and back, `replay`
keeps and replays them, `classifiers` and `methods` learn from them, and
`evaluation` says how well. `experiment` runs the phases, `main` is the command.
"""

__version__ = "0.1.0"
