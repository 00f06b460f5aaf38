"""One file for each row of the paper's tables."""

from ibdrr_tf.methods.base import Method
from ibdrr_tf.methods.drr import DRR
from ibdrr_tf.methods.finetune import Finetune
from ibdrr_tf.methods.ib_drr import IBDRR, IBDRRStar
from ibdrr_tf.methods.raw_replay import RawReplay
from ibdrr_tf.methods.upper_bound import UpperBound

__all__ = ["METHODS", "Method"]

METHODS: dict[str, type[Method]] = {
  "drr": DRR,
  "finetune": Finetune,
  "ib_drr": IBDRR,
  "ib_drr_star": IBDRRStar,
  "raw_replay": RawReplay,
  "upper_bound": UpperBound,
}
