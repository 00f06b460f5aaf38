"""The configuration of a run: every field, its default and what it may be.

The defaults are the embedded demonstration, which needs no file and runs on two
CPU cores in a few minutes. The files in `configs/` start from here.
"""

from typing import Any

import ml_collections

from ibdrr_tf.classifiers import information_back, resnet
from ibdrr_tf.errors import UserError
from ibdrr_tf.replay import pipeline, selection

__all__ = ["get_config", "use_full_codec", "validate"]

# Methods that can be told how many bytes to keep.
_BUDGETED = ("raw_replay", "webp_replay", "jpeg_replay")
# Methods that can be told to look back at raw images, or do it in any case. The
# latter may be told so, to be compared with the others under one config.
_LOOK_BACK = {
  "star": ("webp_replay", "jpeg_replay", "ib_drr_star"),
  "exemplars": ("webp_replay", "jpeg_replay", "ib_drr"),
}


def get_config() -> ml_collections.ConfigDict:
  """The embedded demonstration: generated images of 20 classes."""
  config = ml_collections.ConfigDict()
  config.method = "ib_drr"
  config.dataset = "shapes"  # shapes, folder, or a TensorFlow Datasets name
  config.data_dir = ""
  config.codec = ""  # a codec folder; "" trains one on the base classes
  config.seed = 0
  config.distribute = "auto"  # none, mirrored over all GPUs, or multi_worker
  config.cpu_devices = 0  # logical devices, to try mirrored without a GPU
  # Batch sizes are over all devices. With this, rates grow with their number.
  config.scale_learning_rate = False
  config.mixed_precision = False  # classifiers in float16, for GPUs
  config.eval_batch_size = 500

  config.data = ml_collections.ConfigDict()
  config.data.class_order = "1993"  # a seed, "natural", or numbers: "3,1,2"
  config.data.classes = 0  # how many of that order; 0 is all
  config.data.image_size = 0  # 0 keeps the images' own size
  config.data.ram_bytes = 4 << 30  # larger folders are read as they are needed
  config.data.shapes_train = 200  # generated images a class
  config.data.shapes_test = 50

  config.scenario = ml_collections.ConfigDict()
  config.scenario.base_classes = 0  # 0 is half of them
  config.scenario.phases = 5  # after the base phase

  # The paper's recipe, scaled down by width and epochs.
  config.classifier = ml_collections.ConfigDict()
  config.classifier.backbone = "resnet18"
  config.classifier.stem = "small"  # or large, for images of 100 pixels or more
  config.classifier.width = 8
  config.classifier.epochs = 12
  config.classifier.batch_size = 32
  config.classifier.padding = 4
  config.classifier.learning_rate = 0.1
  config.classifier.momentum = 0.9
  config.classifier.weight_decay = 5e-4
  config.classifier.milestones = (0.3, 0.6, 0.8)
  config.classifier.decay_factor = 5.0
  config.classifier.warmup_epochs = 5.0
  config.classifier.warmup_share = 0.1

  # The lossy stage. Its files and this section's names follow the paper's
  # section 3.1.
  config.vqvae = ml_collections.ConfigDict()
  config.vqvae.codebook_size = 512
  config.vqvae.embedding = 64
  config.vqvae.channels = 128
  config.vqvae.residual_blocks = 2
  config.vqvae.residual_channels = 32
  config.vqvae.top_depth = 1  # residual quantisation stages; 1 is the paper
  config.vqvae.bottom_depth = 2
  config.vqvae.commitment = 0.25
  config.vqvae.codebook = "ema"  # or gradient, the paper's equation 3
  config.vqvae.layout = "subpixel"  # or paper
  config.vqvae.epochs = 6
  config.vqvae.batch_size = 64
  config.vqvae.learning_rate = 1e-3
  config.vqvae.schedule = "cosine"  # with warm-up; or constant
  config.vqvae.warmup_steps = 200
  config.vqvae.clip_norm = 0.5  # of the whole gradient; 0 does not clip
  # A codec to go on from, by name or folder, e.g. to add depth to it. The demo
  # has few images and little time, so it does not begin with nothing.
  config.vqvae.start_from = "cifar100"
  # Reconstruction is also judged by a classifier of the base classes.
  config.vqvae.feature_weight = 0.0
  config.vqvae.feature_epochs = 8
  config.vqvae.feature_width = 8

  # The lossless stage.
  config.bitswap = ml_collections.ConfigDict()
  config.bitswap.latents = 2  # in the Markov chain; 8 is the paper
  config.bitswap.latent_channels = 16
  config.bitswap.latent_stride = 4  # codes a side for each; a power of two
  config.bitswap.latent_warmup = 2.0  # epochs until latents cost what they do
  config.bitswap.width = 32
  config.bitswap.blocks = 2
  config.bitswap.embedding = 16
  config.bitswap.epochs = 8
  config.bitswap.fine_tune_epochs = 1
  config.bitswap.patience = 3  # epochs without gain on held-out codes
  config.bitswap.batch_size = 64
  config.bitswap.learning_rate = 3e-3
  config.bitswap.fine_tune_rate = 1e-3
  # More images in a chain cost less; fewer decode side by side, and alone.
  config.bitswap.chain_images = 250
  config.bitswap.group = 64

  # How codes are replayed; see replay/pipeline.py.
  config.replay = ml_collections.ConfigDict()
  config.replay.cache = "images"  # or codes, which are decoded in every step
  config.replay.raw_share = 0.0  # of reconstructions that give way to a twin
  config.replay.test_view = "raw"  # or codec, or both, averaged
  config.replay.adapt_batch_norm = False  # to the raw images at hand

  # Information Back, section 5.
  config.ib = ml_collections.ConfigDict()
  config.ib.weight = 0.005  # lambda
  config.ib.feature = "features"  # or the end of a stage: stage_0, stage_1, …
  config.ib.batch_norm = "update"  # or batch, or moving

  config.memory = ml_collections.ConfigDict()
  config.memory.exemplars_per_class = 20
  config.memory.selection = "random"  # or herding
  config.memory.quality = 20  # of webp_replay and jpeg_replay
  # Of the same two: star adds what ib_drr_star adds to drr, exemplars what
  # ib_drr adds.
  config.memory.information_back = "none"
  # Instead of a number of exemplars or a quality: as much as fits; 0 is off.
  config.memory.total_bytes = 0
  for method, section in _baselines().items():
    config[method] = section
  return config


def use_full_codec(config: ml_collections.ConfigDict) -> None:
  """A codec that begins with nothing, as long and large as real images need."""
  config.vqvae.epochs = 18
  config.vqvae.learning_rate = 4e-3
  config.vqvae.start_from = ""
  config.bitswap.width = 64
  config.bitswap.embedding = 24
  config.bitswap.epochs = 12
  config.bitswap.fine_tune_epochs = 2
  config.bitswap.chain_images = 1000


def _baselines() -> dict[str, ml_collections.ConfigDict]:
  """What each baseline has for itself, as its authors or PyCIL set it.

  These methods take backbone, batch size and momentum from `classifier`, and
  their learning rates from here: `base` is for the base phase, `increment` for
  those after it.
  """
  section = ml_collections.ConfigDict
  lucir = _schedule(0.1, 5e-4, (80 / 160, 120 / 160), 10.0)
  return {
    "lwf": section(
      {
        "temperature": 2.0,
        "distillation": 3.0,
        "base": _schedule(0.1, 5e-4, (60 / 200, 120 / 200, 160 / 200), 10.0),
        "increment": _schedule(
          0.1, 2e-4, (60 / 250, 120 / 250, 180 / 250, 220 / 250), 10.0
        ),
      }
    ),
    "icarl": section(
      {
        "loss": "softmax",  # or sigmoid, the paper's
        "temperature": 2.0,
        "distillation": 1.0,
        "base": _schedule(0.1, 5e-4, (60 / 200, 120 / 200, 170 / 200), 10.0),
        "increment": _schedule(0.1, 2e-4, (80 / 170, 120 / 170), 10.0),
      }
    ),
    "lucir": section(
      {
        "distillation": 5.0,  # times sqrt(old classes / new classes)
        "ranking": 1.0,
        "margin": 0.5,
        "hardest": 2,
        "base": dict(lucir),
        "increment": dict(lucir),
      }
    ),
    "mnemonics": section(
      {
        "temperature": 2.0,
        "beta": 0.25,
        "pixel_rate": 1e-5,  # in the network's units: 64 grey levels
        "pixel_momentum": 0.9,
        "pixel_epochs": 1,
        "base": dict(lucir),
        "increment": dict(lucir),
      }
    ),
    "gfr": section(
      {
        "noise": 200,
        "hidden": 512,
        "penalty": 10.0,  # of the critic's gradient
        "critic_steps": 5,
        "generator_epochs": 501,
        "generator_batch_size": 128,
        "generator_rate": 1e-4,
        "generator_milestones": (200 / 501, 400 / 501),
        "generator_decay_factor": 1 / 0.3,
        "generator_distillation": 1e-3,
        "views": 10,  # augmented views of the data, whose features are kept
        "base": _schedule(1e-3, 2e-4, (200 / 201,), 10.0),
        "increment": _schedule(1e-3, 2e-4, (200 / 201,), 10.0),
      }
    ),
  }


def _schedule(
  learning_rate: float,
  weight_decay: float,
  milestones: tuple[float, ...],
  decay_factor: float,
) -> dict[str, Any]:
  """A learning rate that falls in steps; milestones are shares of the epochs.

  Zero epochs are as many as `classifier.epochs`.
  """
  return {
    "epochs": 0,
    "learning_rate": learning_rate,
    "weight_decay": weight_decay,
    "milestones": milestones,
    "decay_factor": decay_factor,
    "warmup_epochs": 0.0,
    "warmup_share": 0.1,
  }


def validate(
  config: ml_collections.ConfigDict, methods: tuple[str, ...]
) -> None:
  """Refuses values that would fail later, and less clearly.

  Args:
    config: the whole configuration.
    methods: names of the methods there are.
  """
  _check_fields(config, get_config(), "config")
  _one_of("method", config.method, methods)
  _at_least("seed", config.seed, 0)
  _at_least("eval_batch_size", config.eval_batch_size, 1)
  data = config.data
  for name in ("classes", "image_size", "ram_bytes"):
    _at_least(f"data.{name}", data[name], 0)
  for name in ("shapes_train", "shapes_test"):
    _at_least(f"data.{name}", data[name], 1)
  _at_least("scenario.base_classes", config.scenario.base_classes, 0)
  if config.scenario.phases < 1:
    raise UserError(
      f"phases={config.scenario.phases} is too few: give --phases=1 or more, "
      f"the number of phases that follow the base phase."
    )
  _validate_vqvae(config.vqvae)
  for name, value in config.bitswap.items():
    _at_least(f"bitswap.{name}", value, 1 if isinstance(value, int) else 0)
  stride = config.bitswap.latent_stride
  if stride & (stride - 1):
    raise UserError(
      f"config.bitswap.latent_stride={stride} is no power of two: give 1, 2 or "
      f"4."
    )
  _validate_memory(config.memory, config.method)
  for name in _baselines():
    _validate_baseline(name, config[name])
  classifier = config.classifier
  _one_of("classifier.backbone", classifier.backbone, resnet.BACKBONES)
  _one_of("classifier.stem", classifier.stem, resnet.STEMS)
  for name in ("width", "epochs", "batch_size"):
    _at_least(f"classifier.{name}", classifier[name], 1)
  for name in ("padding", "weight_decay", "warmup_epochs", "warmup_share"):
    _at_least(f"classifier.{name}", classifier[name], 0)
  if not 0 <= classifier.momentum < 1:
    raise UserError(
      f"config.classifier.momentum={classifier.momentum} is out of range: "
      f"give a number from 0 to less than 1."
    )
  _positive("classifier.learning_rate", classifier.learning_rate)
  _positive("classifier.decay_factor", classifier.decay_factor)
  _shares("classifier.milestones", classifier.milestones)
  _validate_replay(config.replay, config.ib)
  features = resnet.FEATURES[classifier.backbone]
  _one_of("config.ib.feature", config.ib.feature, features)


def _validate_memory(config: ml_collections.ConfigDict, method: str) -> None:
  _at_least("memory.exemplars_per_class", config.exemplars_per_class, 1)
  _one_of("memory.selection", config.selection, selection.SELECTIONS)
  _at_least("memory.total_bytes", config.total_bytes, 0)
  if config.quality not in range(101):
    raise UserError(
      f"config.memory.quality={config.quality} is out of range: give 0 to 100."
    )
  back = config.information_back
  _one_of("memory.information_back", back, information_back.RAW_IMAGES)
  if back != "none" and method not in _LOOK_BACK[back]:
    raise UserError(
      f"config.memory.information_back={back} is not for --method={method}: "
      f"leave it out, or choose from {', '.join(_LOOK_BACK[back])}."
    )
  if config.total_bytes and method not in _BUDGETED:
    raise UserError(
      f"config.memory.total_bytes is not for --method={method}: leave it out, "
      f"or choose from {', '.join(_BUDGETED)}."
    )


def _validate_baseline(name: str, config: ml_collections.ConfigDict) -> None:
  """Counts are 1 or more, other numbers not negative, milestones shares."""
  for field, value in config.items():
    path = f"{name}.{field}"
    if isinstance(value, ml_collections.ConfigDict):
      _at_least(f"{path}.epochs", value.epochs, 0)
      _positive(f"{path}.learning_rate", value.learning_rate)
      _positive(f"{path}.decay_factor", value.decay_factor)
      for other in ("weight_decay", "warmup_epochs", "warmup_share"):
        _at_least(f"{path}.{other}", value[other], 0)
      _shares(f"{path}.milestones", value.milestones)
    elif field.endswith("milestones"):
      _shares(path, value)
    elif field.endswith(("temperature", "rate", "decay_factor")):
      _positive(path, value)
    elif not isinstance(value, str):
      _at_least(path, value, 1 if isinstance(value, int) else 0)
  if name == "icarl":
    _one_of("icarl.loss", config.loss, ("softmax", "sigmoid"))


def _validate_vqvae(config: ml_collections.ConfigDict) -> None:
  for name in (
    "codebook_size",
    "embedding",
    "residual_channels",
    "top_depth",
    "bottom_depth",
    "epochs",
    "batch_size",
    "feature_epochs",
    "feature_width",
  ):
    _at_least(f"vqvae.{name}", config[name], 1)
  for name in (
    "residual_blocks",
    "commitment",
    "warmup_steps",
    "clip_norm",
    "feature_weight",
  ):
    _at_least(f"vqvae.{name}", config[name], 0)
  # Some layers of the paper's layout have half as many.
  _at_least("vqvae.channels", config.channels, 2)
  _positive("vqvae.learning_rate", config.learning_rate)
  _one_of("vqvae.codebook", config.codebook, ("ema", "gradient"))
  _one_of("vqvae.layout", config.layout, ("paper", "subpixel"))
  _one_of("vqvae.schedule", config.schedule, ("cosine", "constant"))


def _validate_replay(
  replay: ml_collections.ConfigDict, ib: ml_collections.ConfigDict
) -> None:
  _one_of("config.replay.cache", replay.cache, pipeline.CACHES)
  _one_of("config.replay.test_view", replay.test_view, ("raw", "codec", "both"))
  if not 0 <= replay.raw_share <= 1:
    raise UserError(
      f"config.replay.raw_share={replay.raw_share} is out of range: give a "
      f"number from 0 to 1."
    )
  _at_least("ib.weight", ib.weight, 0)
  _one_of("config.ib.batch_norm", ib.batch_norm, information_back.BATCH_NORMS)


def _check_fields(config, expected, path: str) -> None:
  """Refuses a config file that invents fields, or leaves some out."""
  for name in sorted(set(config) ^ set(expected)):
    state = "unknown" if name in config else "missing"
    raise UserError(
      f"the config's field {path}.{name} is {state}: start from "
      f"ibdrr_tf.config.get_config(), which lists them all."
    )
  for name, value in expected.items():
    if isinstance(value, ml_collections.ConfigDict):
      _check_fields(config[name], value, f"{path}.{name}")


def _one_of(name: str, value: str, allowed) -> None:
  if value not in allowed:
    raise UserError(
      f"{name}={value!r} is unknown: choose from {', '.join(sorted(allowed))}."
    )


def _shares(name: str, values) -> None:
  for share in values:
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
      raise UserError(
        f"config.{name} has {share!r}: give shares of the epochs, from 0 to 1."
      )


def _positive(name: str, value: float) -> None:
  if not value > 0:
    raise UserError(
      f"config.{name}={value} is not positive: give a number above 0."
    )


def _at_least(name: str, value: float, least: float) -> None:
  if not value >= least:
    raise UserError(
      f"config.{name}={value} is too small: give {least} or more."
    )
