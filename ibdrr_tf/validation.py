"""What the fields of a configuration may be; `config` has their defaults."""

import pathlib

import ml_collections

from ibdrr_tf import choices
from ibdrr_tf.codec import pretrained
from ibdrr_tf.config import baselines, get_config
from ibdrr_tf.data.folder_layout import split_dirs
from ibdrr_tf.errors import UserError
from ibdrr_tf.state import MOST_SIDE

__all__ = ["check_circumstances", "check_codec", "validate"]

# What the numbers in a chain's header, and in tables of 16 bits, can tell.
_MOST_GROUP = (1 << 16) - 1
_MOST_PLANES = (1 << 8) - 1
_MOST_CODES = 1 << 14
# Weights are stored in one byte.
_MOST_LEVELS = 127


def validate(config: ml_collections.ConfigDict) -> None:
  """Refuses values that would fail later, and less clearly.

  What a run finds on its machine is left to `check_circumstances` and
  `check_codec`. None of them needs TensorFlow.
  """
  _check_fields(config, get_config(), "config")
  # Random numbers are drawn by int32 seeds.
  if not 0 <= config.seed < 2**31:
    raise UserError(
      f"config.seed={config.seed} is out of range: give 0 to {2**31 - 1}."
    )
  _at_least("eval_batch_size", config.eval_batch_size, 1)
  data = config.data
  for name in ("classes", "image_size", "ram_bytes"):
    _at_least(f"data.{name}", data[name], 0)
  if not 0 <= data.validation < 1:
    raise UserError(
      f"config.data.validation={data.validation} is not a share of the "
      f"training images: give 0 to less than 1."
    )
  if data.image_size > MOST_SIDE:
    raise UserError(
      f"config.data.image_size={data.image_size} is too large: give "
      f"{MOST_SIDE} or less."
    )
  for name in ("shapes_train", "shapes_test"):
    _at_least(f"data.{name}", data[name], 1)
  _at_least("scenario.base_classes", config.scenario.base_classes, 0)
  if config.scenario.phases < 1:
    raise UserError(
      f"phases={config.scenario.phases} is too few: give --phases=1 or more, "
      f"the number of phases that follow the base phase."
    )
  _one_of("precision", config.precision, (*choices.PRECISIONS, "auto"))
  _validate_vqvae(config.vqvae)
  if config.bitswap.group > _MOST_GROUP:
    raise UserError(
      f"config.bitswap.group={config.bitswap.group} is too large: give "
      f"{_MOST_GROUP} or less."
    )
  _one_of("bitswap.refit", config.bitswap.refit, choices.REFITS)
  for name, value in config.bitswap.items():
    if isinstance(value, str):
      continue
    least = 1 if isinstance(value, int) and name != "latents" else 0
    _at_least(f"bitswap.{name}", value, least)
  if config.bitswap.latent_kernel not in (1, 3):
    raise UserError(
      f"config.bitswap.latent_kernel={config.bitswap.latent_kernel} is no size "
      f"of a kernel: give 1 or 3."
    )
  stride = config.bitswap.latent_stride
  if stride & (stride - 1):
    raise UserError(
      f"config.bitswap.latent_stride={stride} is no power of two: give 1, 2 or "
      f"4."
    )
  _validate_memory(config.memory)
  for name in baselines():
    _validate_baseline(name, config[name])
  classifier = config.classifier
  _one_of("classifier.backbone", classifier.backbone, choices.FEATURES)
  _one_of("classifier.stem", classifier.stem, choices.STEMS)
  for name in ("width", "epochs", "batch_size"):
    _at_least(f"classifier.{name}", classifier[name], 1)
  for name in ("padding", "weight_decay", "warmup_epochs", "warmup_share"):
    _at_least(f"classifier.{name}", classifier[name], 0)
  _at_least("classifier.updates", classifier.updates, 0)
  _one_of("classifier.schedule", classifier.schedule, choices.SCHEDULES)
  _one_of("classifier.stored", classifier.stored, choices.STORED)
  _one_of("classifier.augment", classifier.augment, choices.AUGMENTS)
  _one_of("classifier.start", classifier.start, choices.STARTS)
  if classifier.test_views not in choices.TEST_VIEWS:
    raise UserError(
      f"config.classifier.test_views={classifier.test_views} is unknown: give "
      f"{', '.join(map(str, choices.TEST_VIEWS))}."
    )
  for name in ("shrink", "perturb"):
    _at_least(f"classifier.{name}", classifier[name], 0)
  _momentum("classifier.momentum", classifier.momentum)
  _positive("classifier.learning_rate", classifier.learning_rate)
  _positive("classifier.decay_factor", classifier.decay_factor)
  _shares("classifier.milestones", classifier.milestones)
  _validate_replay(config.replay, config.ib)
  features = choices.FEATURES[classifier.backbone]
  _one_of("ib.feature", config.ib.feature, features)


def check_codec(
  config: ml_collections.ConfigDict, workdir: str | pathlib.Path
) -> None:
  """Refuses codecs that are not there, before anything is done for a run.

  Args:
    config: names one to take, or one to go on from.
    workdir: of the run; once it has its codec, the other may be gone.
  """
  if (pathlib.Path(workdir) / "codec" / pretrained.VQVAE_FILE).is_file():
    return
  if config.codec:
    pretrained.folder_of(config.codec)
  elif config.vqvae.start_from:
    pretrained.folder_of(config.vqvae.start_from, (pretrained.VQVAE_FILE,))


def check_circumstances(config: ml_collections.ConfigDict) -> None:
  """Refuses a method, devices or an image folder that are not there."""
  choices.check_method_name(config.method)
  choices.check_devices(config.distribute, config.cpu_devices)
  if config.dataset == "folder":
    split_dirs(config.data_dir)


def _validate_memory(config: ml_collections.ConfigDict) -> None:
  _at_least("memory.exemplars_per_class", config.exemplars_per_class, 1)
  _one_of("memory.selection", config.selection, choices.SELECTIONS)
  for name in ("total_bytes", "expected_images"):
    _at_least(f"memory.{name}", config[name], 0)
  for name in ("quality", "detail"):
    if config[name] not in range(101):
      raise UserError(
        f"config.memory.{name}={config[name]} is out of range: give 0 to 100."
      )
  _one_of("memory.sheet", config.sheet, choices.SHEETS)
  back = config.information_back
  _one_of("memory.information_back", back, choices.RAW_IMAGES)


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
    elif field.endswith("momentum"):
      _momentum(path, value)
    elif field.endswith(("temperature", "rate", "decay_factor")):
      _positive(path, value)
    elif isinstance(value, tuple):  # Sizes of layers.
      _at_least(path, min(value, default=0), 1)
    elif not isinstance(value, str):
      _at_least(path, value, 1 if isinstance(value, int) else 0)
  if name == "icarl":
    _one_of("icarl.loss", config.loss, ("softmax", "sigmoid"))
  if name == "aqm" and len(config.widths) != len(config.depths):
    raise UserError(
      f"config.aqm.widths and config.aqm.depths are of {len(config.widths)} "
      f"and {len(config.depths)} modules: give as many of both."
    )
  if name == "eec" and config.content > 1:
    raise UserError(
      f"config.eec.content={config.content} is no share: give 0 to 1."
    )
  if name == "mnemonics":
    _one_of("mnemonics.loss", config.loss, ("lucir", "released"))


def _validate_vqvae(config: ml_collections.ConfigDict) -> None:
  codes = config.codebook_size
  if not 2 <= codes <= _MOST_CODES or codes & (codes - 1):
    raise UserError(
      f"config.vqvae.codebook_size={codes} is no power of two from 2 to "
      f"{_MOST_CODES}: give one, such as 512."
    )
  for name in (
    "embedding",
    "residual_channels",
    "bottom_depth",
    "epochs",
    "batch_size",
    "feature_epochs",
    "feature_width",
  ):
    _at_least(f"vqvae.{name}", config[name], 1)
  for name in (
    "top_depth",
    "stage_dropout",
    "kernel_levels",
    "residual_blocks",
    "commitment",
    "warmup_steps",
    "clip_norm",
    "feature_weight",
  ):
    _at_least(f"vqvae.{name}", config[name], 0)
  if config.kernel_levels > _MOST_LEVELS:
    raise UserError(
      f"config.vqvae.kernel_levels={config.kernel_levels} is too many: give "
      f"{_MOST_LEVELS} or fewer."
    )
  if config.stage_dropout and not config.blank:
    raise UserError(
      f"config.vqvae.stage_dropout={config.stage_dropout} leaves out stages, "
      f"for which blank codes are needed: give --config.vqvae.blank=true."
    )
  if config.stage_dropout > 1:
    raise UserError(
      f"config.vqvae.stage_dropout={config.stage_dropout} is no share: give 0 "
      f"to 1."
    )
  planes = config.top_depth + 4 * config.bottom_depth
  if planes > _MOST_PLANES:
    raise UserError(
      f"config.vqvae.top_depth + 4 * config.vqvae.bottom_depth is {planes}: "
      f"give less depth, {_MOST_PLANES} in all at most."
    )
  # Some layers of the paper's layout have half as many.
  _at_least("vqvae.channels", config.channels, 2)
  _positive("vqvae.learning_rate", config.learning_rate)
  _one_of("vqvae.codebook", config.codebook, ("ema", "gradient"))
  _one_of("vqvae.layout", config.layout, ("paper", "subpixel"))
  _one_of("vqvae.schedule", config.schedule, ("cosine", "constant"))


def _validate_replay(
  replay: ml_collections.ConfigDict, ib: ml_collections.ConfigDict
) -> None:
  _one_of("replay.cache", replay.cache, choices.CACHES)
  if not 0 <= replay.raw_share <= 1:
    raise UserError(
      f"config.replay.raw_share={replay.raw_share} is out of range: give a "
      f"number from 0 to 1."
    )
  _at_least("ib.weight", ib.weight, 0)
  _one_of("ib.batch_norm", ib.batch_norm, choices.BATCH_NORMS)


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
      f"config.{name}={value!r} is unknown: choose from "
      f"{', '.join(sorted(allowed))}."
    )


def _shares(name: str, values) -> None:
  for share in values:
    if not isinstance(share, (int, float)) or not 0 <= share <= 1:
      raise UserError(
        f"config.{name} has {share!r}: give shares of the epochs, from 0 to 1."
      )


def _momentum(name: str, value: float) -> None:
  if not 0 <= value < 1:
    raise UserError(
      f"config.{name}={value} is out of range: give a number from 0 to less "
      f"than 1."
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
