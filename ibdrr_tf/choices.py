"""The names that fields of a configuration may have.

The modules that give these names a meaning import them from here. Nothing here
needs TensorFlow, so a wrong name is answered before TensorFlow is imported.
"""

from collections.abc import Collection

from ibdrr_tf.errors import UserError

__all__ = [
  "AUGMENTS",
  "BATCH_NORMS",
  "CACHES",
  "FEATURES",
  "METHODS",
  "METHOD_GROUPS",
  "PRECISIONS",
  "RAW_IMAGES",
  "REFITS",
  "SCHEDULES",
  "SELECTIONS",
  "SHEETS",
  "STARTS",
  "STEMS",
  "STORED",
  "STRATEGIES",
  "TEST_VIEWS",
  "check_devices",
  "check_method_name",
  "method_list",
]

# Methods by what they keep of old classes; the first group is this package's.
METHOD_GROUPS = {
  "ours": ("ib_drr", "ib_drr_star", "drr"),
  "exemplars": (
    "raw_replay",
    "er",
    "a_gem",
    "gem",
    "gdumb",
    "icarl",
    "lucir",
    "mnemonics",
    "wa",
    "podnet",
    "der",
    "der_pp",
  ),
  "compression": (
    "sheet_replay",
    "webp_replay",
    "jpeg_replay",
    "mrdc",
    "aqm",
    "eec",
    "scalable_recollections",
  ),
  "features and generators": ("latent_replay", "remind", "gfr", "dgr"),
  "regularisation": ("lwf", "ewc", "si"),
  "bounds": ("upper_bound", "finetune"),
}
# `register_method` adds to these.
METHODS = {name for names in METHOD_GROUPS.values() for name in names}

# Backbones, and the layers whose output can serve as features: the ends of
# stages, and the last. `register_backbone` adds to these.
FEATURES: dict[str, tuple[str, ...]] = {
  "resnet8": ("stage_0", "stage_1", "stage_2", "features"),
  "resnet18": ("stage_0", "stage_1", "stage_2", "stage_3", "features"),
  "resnet32": ("stage_0", "stage_1", "stage_2", "features"),
}
STEMS = ("small", "large")

# In what a backbone may compute, and Keras' policy for it.
PRECISIONS = {
  "float32": "float32",
  "bfloat16": "mixed_bfloat16",
  "float16": "mixed_float16",
}
# In what the network of a step is stored.
STORED = ("float32", "int8")
# How the learning rate of SGD goes: the paper's steps, or up and down once.
SCHEDULES = ("steps", "one_cycle")

# Which raw images Information Back has. none: the term is left out; star: those
# of the new classes, as in IB-DRR*; exemplars: also a few of each old one, as
# in IB-DRR.
RAW_IMAGES = ("none", "star", "exemplars")
# How its raw branch meets batch normalisation. The paper does not say.
# moving: the running averages; batch: its own statistics, but the averages
# stay; update: its own statistics, which also move the averages, to what raw
# images there are: in later phases, mostly those of the new classes.
BATCH_NORMS = ("moving", "batch", "update")

# How exemplars are chosen. random: equally many images of each class, at
# random. herding: close to the mean of their class (iCaRL). The others are the
# rules of Isele and Cosgun (2018), selective experience replay. There an
# agent's experience is ranked by its temporal-difference error, by its return,
# at random, or by how few others are near. A classifier answers once and is
# right or wrong: the return that it expects is its probability of the true
# class, p, and its error is 1 - p. surprise: the least p. reward: the largest
# p. distribution: a random sample of all images seen, whatever their class
# (`replay.reservoir`). coverage: few neighbours.
SELECTIONS = (
  "random",
  "herding",
  "surprise",
  "reward",
  "distribution",
  "coverage",
)
# Formats of contact sheets.
SHEETS = ("avif", "avif_best", "webp")
# When Bit-Swap is fine-tuned. always: in each step, as in the paper. growth:
# once memory has grown by half since the last time, so that the cost of all
# fine-tunings together is a few times that of the last, or once codes have
# become coarser. never: only where there is no model at all.
REFITS = ("always", "growth", "never")
# What of a memory of codes is kept in RAM.
CACHES = ("codes", "images")

# How images vary in training: crops and flips, or RandAugment and Cutout too.
AUGMENTS = ("light", "strong")
# As how many views an image is classified: as it is; also flipped; also shifted
# in four directions.
TEST_VIEWS = (1, 2, 10)
# What a step of a method that learns from scratch starts from.
STARTS = ("scratch", "shrink_perturb")

# How to use several devices.
STRATEGIES = ("auto", "none", "mirrored", "multi_worker")


def check_method_name(name: str, known: Collection[str] = METHODS) -> None:
  """Raises UserError if no method of this name is known."""
  if name not in known:
    raise UserError(
      f"there is no method {name!r}: choose from {', '.join(sorted(known))}, "
      f"or load the plugin that registers it."
    )


def method_list() -> str:
  """All methods, a line for each group, for help texts."""
  groups = [f"{name}: {', '.join(m)}" for name, m in METHOD_GROUPS.items()]
  own = METHODS.difference(*METHOD_GROUPS.values())
  if own:
    groups.append(f"of plugins: {', '.join(sorted(own))}")
  return "\n".join(["", *groups])


def check_devices(strategy: str, cpu_devices: int) -> None:
  """Raises UserError for an unknown strategy or a negative number."""
  if strategy not in STRATEGIES:
    raise UserError(
      f"--distribute={strategy} is unknown: choose from "
      f"{', '.join(STRATEGIES)}."
    )
  if cpu_devices < 0:
    raise UserError(f"--cpu_devices={cpu_devices} is negative: give 0 or more.")
