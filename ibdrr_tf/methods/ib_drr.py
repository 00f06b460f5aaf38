"""Information-Back Discrete Representation Replay.

Section 5 of the paper: DRR whose classifier is also drawn towards what it sees
in raw images, as far as they are at hand. IB-DRR* has those of the new classes
only; IB-DRR keeps a few raw exemplars of each class as well.
"""

import functools

from ibdrr_tf.classifiers.information_back import ReplayClassifier
from ibdrr_tf.methods.method import Method, Step
from ibdrr_tf.replay.code_memory import CodeMemory

__all__ = ["IB_DRR", "IB_DRR_STAR", "information_back"]


def information_back(step: Step, classifier: ReplayClassifier) -> None:
  """Adds lambda L_sim to the cross-entropy where raw images are at hand."""
  if step.memory.raw != "none":
    config = step.config.ib
    classifier.look_back(config.weight, config.feature, config.batch_norm)


IB_DRR_STAR = Method(
  memory=functools.partial(CodeMemory, raw="star"), objective=information_back
)
IB_DRR = Method(
  memory=functools.partial(CodeMemory, raw="exemplars"),
  objective=information_back,
)
