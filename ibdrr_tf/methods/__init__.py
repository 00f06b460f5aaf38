"""One file for each row of the paper's tables."""

from ibdrr_tf.methods.base import Method
from ibdrr_tf.methods.drr import DRR
from ibdrr_tf.methods.finetune import Finetune
from ibdrr_tf.methods.gfr import GFR
from ibdrr_tf.methods.ib_drr import IBDRR, IBDRRStar
from ibdrr_tf.methods.icarl import ICaRL
from ibdrr_tf.methods.lossy_replay import JPEGReplay, WebPReplay
from ibdrr_tf.methods.lucir import LUCIR
from ibdrr_tf.methods.lwf import LwF
from ibdrr_tf.methods.mnemonics import Mnemonics
from ibdrr_tf.methods.raw_replay import RawReplay
from ibdrr_tf.methods.upper_bound import UpperBound

__all__ = ["METHODS", "Method"]

METHODS: dict[str, type[Method]] = {
  "drr": DRR,
  "finetune": Finetune,
  "ib_drr": IBDRR,
  "ib_drr_star": IBDRRStar,
  "gfr": GFR,
  "icarl": ICaRL,
  "jpeg_replay": JPEGReplay,
  "lucir": LUCIR,
  "lwf": LwF,
  "mnemonics": Mnemonics,
  "raw_replay": RawReplay,
  "upper_bound": UpperBound,
  "webp_replay": WebPReplay,
}
