"""One place for each row of the paper's tables, and for each peer."""

from ibdrr_tf.methods import (
  bounds,
  drr,
  gfr,
  ib_drr,
  icarl,
  image_replay,
  lucir,
  lwf,
  mnemonics,
)
from ibdrr_tf.methods.method import (
  METHODS,
  Method,
  Step,
  argmax,
  check_method,
  cross_entropy,
  from_last,
  from_scratch,
  learn_step,
  method_named,
  nearest_mean,
  recipe_of,
  register_method,
)

__all__ = [
  "METHODS",
  "Method",
  "Step",
  "argmax",
  "check_method",
  "cross_entropy",
  "from_last",
  "from_scratch",
  "learn_step",
  "method_named",
  "nearest_mean",
  "recipe_of",
  "register_method",
]

for _name, _method in {
  "drr": drr.DRR,
  "finetune": bounds.FINETUNE,
  "gfr": gfr.GFR,
  "ib_drr": ib_drr.IB_DRR,
  "ib_drr_star": ib_drr.IB_DRR_STAR,
  "icarl": icarl.ICARL,
  "jpeg_replay": image_replay.JPEG_REPLAY,
  "lucir": lucir.LUCIR,
  "lwf": lwf.LWF,
  "mnemonics": mnemonics.MNEMONICS,
  "raw_replay": image_replay.RAW_REPLAY,
  "sheet_replay": image_replay.SHEET_REPLAY,
  "upper_bound": bounds.UPPER_BOUND,
  "webp_replay": image_replay.WEBP_REPLAY,
}.items():
  register_method(_name)(_method)
