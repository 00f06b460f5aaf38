"""The configuration of a run: every field and its default.

The files in `configs/` start from these defaults; `demo_config` is what runs
without a file. `validation` says what the fields may be.
"""

from typing import Any

import ml_collections

__all__ = [
  "CIRCUMSTANCES",
  "baselines",
  "demo_config",
  "get_config",
  "learner_config",
  "update_known",
  "use_full_recipe",
  "use_one_cycle",
]

# Where data lies and on what devices it runs does not change what a run is.
CIRCUMSTANCES = ("data_dir", "distribute", "cpu_devices")


def get_config() -> ml_collections.ConfigDict:
  """All fields: generated images of 20 classes, a codec trained on them."""
  config = ml_collections.ConfigDict()
  config.method = "ib_drr"
  config.dataset = "shapes"  # shapes, folder, or a TensorFlow Datasets name
  config.data_dir = ""
  config.codec = ""  # a name or folder; "" trains one on the base classes
  config.seed = 0
  config.distribute = "auto"  # none, mirrored over all GPUs, or multi_worker
  config.cpu_devices = 0  # logical devices, to try mirrored without a GPU
  # Batch sizes are over all devices. With this, rates grow with their number.
  config.scale_learning_rate = False
  # In which classifiers compute: bfloat16, float16, or auto, the fastest that
  # the devices have.
  config.precision = "float32"
  config.eval_batch_size = 500

  config.data = ml_collections.ConfigDict()
  config.data.class_order = "1993"  # a seed, "natural", or numbers: "3,1,2"
  config.data.classes = 0  # how many of that order; 0 is all
  config.data.image_size = 0  # 0 keeps the images' own size
  config.data.ram_bytes = 4 << 30  # larger folders are read as they are needed
  # Evaluate on this share of each class' training images, held out, instead of
  # test images: settings are chosen with it.
  config.data.validation = 0.0
  config.data.skip_broken = False  # leave out files that cannot be decoded
  config.data.shapes_train = 160  # generated images a class
  config.data.shapes_test = 50

  config.scenario = ml_collections.ConfigDict()
  config.scenario.base_classes = 0  # 0 is half of them
  config.scenario.phases = 5  # after the base phase

  # The paper's recipe, scaled down by width and epochs, and with a rate that
  # falls later: a few epochs would be over before anything is learned.
  config.classifier = ml_collections.ConfigDict()
  config.classifier.backbone = "resnet18"  # or resnet8, resnet32
  config.classifier.stem = "small"  # or large, for images of 100 pixels or more
  config.classifier.width = 8
  config.classifier.epochs = 6
  config.classifier.updates = 0  # at least so many a step, by more epochs
  config.classifier.stored = "float32"  # as the next step finds it; or int8
  config.classifier.schedule = "steps"  # the paper's; or one_cycle
  config.classifier.batch_size = 32
  config.classifier.padding = 4
  config.classifier.augment = "light"  # crop and flip; strong: RandAugment too
  config.classifier.test_views = 1  # 2: and flipped; 10: and shifted
  # How methods that learn from scratch start a step: or shrink_perturb, from
  # `shrink` times the last weights plus `perturb` times random ones.
  config.classifier.start = "scratch"
  config.classifier.shrink = 0.4
  config.classifier.perturb = 0.1
  config.classifier.learning_rate = 0.1
  config.classifier.momentum = 0.9
  config.classifier.weight_decay = 5e-4
  config.classifier.milestones = (0.6, 0.8)
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
  # Residual quantisation stages; 1 is the paper, and 0 has no top level.
  config.vqvae.top_depth = 1
  config.vqvae.bottom_depth = 2
  # Whether places may leave out the bottom's last stages, so that one model
  # serves many rates; and the share of images that are trained that way.
  config.vqvae.blank = False
  config.vqvae.stage_dropout = 0.0
  config.vqvae.kernel_levels = 0  # to store weights in fewer bits, e.g. 15
  config.vqvae.commitment = 0.25
  config.vqvae.codebook = "ema"  # or gradient, the paper's equation 3
  config.vqvae.layout = "subpixel"  # or paper
  config.vqvae.epochs = 4
  config.vqvae.batch_size = 64
  config.vqvae.learning_rate = 1e-3
  config.vqvae.schedule = "cosine"  # with warm-up; or constant
  config.vqvae.warmup_steps = 200
  config.vqvae.clip_norm = 0.5  # of the whole gradient; 0 does not clip
  # A codec to go on from, by name or folder, e.g. to add depth to it. Generated
  # images are few, so training does not begin with nothing.
  config.vqvae.start_from = "cifar100"
  # Reconstruction is also judged by a classifier of the base classes.
  config.vqvae.feature_weight = 0.0
  config.vqvae.feature_epochs = 8
  config.vqvae.feature_width = 8

  # The lossless stage.
  config.bitswap = ml_collections.ConfigDict()
  config.bitswap.latents = 2  # in the Markov chain; 8 is the paper; 0 has none
  config.bitswap.latent_channels = 16
  config.bitswap.latent_stride = 4  # codes a side for each; a power of two
  config.bitswap.latent_kernel = 1  # between latents; 3 sees neighbours
  config.bitswap.latent_warmup = 2.0  # epochs until latents cost what they do
  config.bitswap.width = 32
  config.bitswap.blocks = 1
  config.bitswap.embedding = 16
  config.bitswap.epochs = 5
  config.bitswap.fine_tune_epochs = 1
  config.bitswap.refit = "always"  # fine-tune in each step; growth, or never
  config.bitswap.patience = 3  # epochs without gain on held-out codes
  config.bitswap.batch_size = 64
  config.bitswap.learning_rate = 3e-3
  config.bitswap.fine_tune_rate = 1e-3
  # More images in a chain cost less; fewer decode side by side, and alone.
  config.bitswap.chain_images = 250
  config.bitswap.group = 64

  # How codes are replayed; see replay/feeds.py.
  config.replay = ml_collections.ConfigDict()
  config.replay.cache = "images"  # or codes, which are decoded in every step
  config.replay.raw_share = 0.0  # how often a raw twin is taken instead

  # Information Back, section 5.
  config.ib = ml_collections.ConfigDict()
  config.ib.weight = 0.5  # lambda; the paper's is .005, see results/options.md
  config.ib.feature = "features"  # or the end of a stage: stage_0, stage_1, …
  config.ib.batch_norm = "moving"  # or batch, or update

  config.memory = ml_collections.ConfigDict()
  config.memory.exemplars_per_class = 20
  # Or herding, surprise, reward, distribution, coverage: replay/selection.py.
  config.memory.selection = "random"
  config.memory.quality = 20  # of webp_replay, jpeg_replay and sheet_replay
  config.memory.sheet = "avif"  # of sheet_replay; or avif_best, or webp
  # Of codes, 0 to 100; less needs a codec with blank codes, see replay/detail.
  config.memory.detail = 100
  # Of the same two: star adds what ib_drr_star adds to drr, exemplars what
  # ib_drr adds.
  config.memory.information_back = "none"
  # Byte budget of images and codec after every step: coarser images or fewer of
  # them; 0 is off.
  config.memory.total_bytes = 0
  # How many will come in all; a new learner chooses its memory with it, if it
  # has a budget. 0 is unknown.
  config.memory.expected_images = 0
  for method, section in baselines().items():
    config[method] = section
  return config


def demo_config() -> ml_collections.ConfigDict:
  """The demonstration: no data, no codec to train, minutes on two CPU cores."""
  config = get_config()
  config.codec = "tiny_imagenet"
  config.precision = "auto"
  config.memory.exemplars_per_class = 5
  use_one_cycle(config, epochs=12)
  config.classifier.batch_size = 64
  return config


def use_one_cycle(config: ml_collections.ConfigDict, epochs: int) -> None:
  """The fast recipe: the rate rises to 0.2 and falls to 0, once."""
  config.classifier.schedule = "one_cycle"
  config.classifier.learning_rate = 0.2
  config.classifier.epochs = epochs


def use_full_recipe(config: ml_collections.ConfigDict) -> None:
  """For real images: the paper's schedule, and a codec from nothing."""
  config.classifier.milestones = (0.3, 0.6, 0.8)
  config.vqvae.epochs = 18
  config.vqvae.learning_rate = 4e-3
  config.vqvae.start_from = ""
  config.bitswap.width = 64
  config.bitswap.blocks = 2
  config.bitswap.embedding = 24
  config.bitswap.epochs = 12
  config.bitswap.fine_tune_epochs = 2
  config.bitswap.chain_images = 1000


def learner_config() -> ml_collections.ConfigDict:
  """For images that arrive over time: no codec to train, a short recipe."""
  config = get_config()
  use_full_recipe(config)
  # Chosen in the first step, see `memory_choice`.
  config.method = config.codec = "auto"
  config.memory.quality = 60
  config.dataset = "folder"
  use_one_cycle(config, epochs=12)
  config.classifier.width = 16
  config.classifier.updates = 600
  config.classifier.batch_size = 64
  config.bitswap.refit = "growth"
  return config


def update_known(
  config: ml_collections.ConfigDict, stored: dict[str, Any]
) -> None:
  """Takes over stored values of the fields that there still are.

  Args:
    config: the defaults, changed in place.
    stored: a configuration as JSON, perhaps of an older version.
  """
  for name, value in stored.items():
    if name == "mixed_precision":  # Until 0.1.0.
      name, value = "precision", "float16" if value else "float32"
    if name not in config:
      continue
    if isinstance(config[name], ml_collections.ConfigDict):
      update_known(config[name], value)
    else:
      kind = type(config[name])
      config[name] = tuple(value) if kind is tuple else value


def baselines() -> dict[str, ml_collections.ConfigDict]:
  """What each baseline has for itself, as its authors or PyCIL set it.

  These methods take backbone, batch size and momentum from `classifier`, and
  their learning rates from here: `base` is for the base phase, `increment` for
  those after it.
  """
  section = ml_collections.ConfigDict
  lucir = _schedule(0.1, 5e-4, (80 / 160, 120 / 160), 10.0)
  regulariser = {
    "base": _schedule(0.1, 5e-4, (60 / 200, 120 / 200, 170 / 200), 10.0),
    "increment": _schedule(0.1, 2e-4, (70 / 180, 120 / 180, 150 / 180), 10.0),
  }
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
        "loss": "lucir",  # or released, with the next two
        "temperature": 2.0,
        "beta": 0.25,
        "pixel_rate": 1e-5,  # in the network's units: 64 grey levels
        "pixel_momentum": 0.9,
        "pixel_epochs": 1,
        "base": dict(lucir),
        "increment": dict(lucir),
      }
    ),
    "wa": section(
      {
        "temperature": 2.0,
        "base": _schedule(0.1, 5e-4, (60 / 200, 120 / 200, 170 / 200), 10.0),
        "increment": _schedule(
          0.1, 2e-4, (60 / 170, 100 / 170, 140 / 170), 10.0
        ),
      }
    ),
    "der": section(
      {
        "base": _schedule(0.1, 5e-4, (60 / 200, 120 / 200, 170 / 200), 10.0),
        "increment": _schedule(
          0.1, 2e-4, (80 / 170, 120 / 170, 150 / 170), 10.0
        ),
      }
    ),
    "mrdc": section(
      {
        "epsilon": 0.5,  # how far the ratio of volumes may be from 1
        "base": dict(lucir),
        "increment": dict(lucir),
      }
    ),
    "der_pp": section(
      {
        "alpha": 0.3,  # of kept logits
        "beta": 0.5,  # of labels of drawn images
      }
    ),
    "gem": section({"margin": 0.5}),  # of the quadratic programme
    "ewc": section(
      {
        "penalty": 1000.0,  # lambda
        "largest": 1e-4,  # Fisher information is clipped
        "images": 1000,  # of a step, that it is taken from
        **regulariser,
      }
    ),
    "si": section(
      {
        "penalty": 0.5,  # c
        "damping": 1.0,  # xi
        **regulariser,
      }
    ),
    "dgr": section(
      {
        "widths": (32, 64, 128),  # of convolutions of stride 2
        "latent": 100,
        "variance": 0.05,  # of a pixel from -1 to 1
        **_coder(epochs=60, updates=2000),
      }
    ),
    "scalable_recollections": section(
      {
        "widths": (64, 128),  # of convolutions of stride 2
        "variables": 2,  # at each place of the grid
        "categories": 16,
        "temperature": 0.7,
        "variance": 0.02,  # of a pixel from -1 to 1
        **_coder(epochs=30, updates=600),
      }
    ),
    "aqm": section(
      {
        "widths": (64, 64),  # of the modules; each halves the resolution
        "entries": 256,  # of a codebook
        "depths": (1, 2),  # codebooks of each module
        "commitment": 0.25,
        "error": 0.02,  # mean square of pixels from -1 to 1: 23 dB
        "frozen": 0.9,  # share of images within it that freezes a codebook
        **_coder(epochs=30, updates=600),
      }
    ),
    "eec": section(
      {
        "widths": (64, 32),  # of convolutions of stride 2
        "depth": 16,  # of a code, at a quarter of the resolution
        "content": 0.3,  # weight of features; 1 - content is that of pixels
        **_coder(epochs=30, updates=600),
      }
    ),
    "latent_replay": section({"mixup": 0.0}),
    "remind": section(
      {
        "mixup": 0.1,  # both parameters of a beta distribution; 0 is off
        "dimensions": 16,  # channels of a codebook
      }
    ),
    "podnet": section(
      {
        "spatial": 5.0,  # times sqrt(classes / new classes), as the next
        "flat": 1.0,
        "margin": 0.6,
        "base": _schedule(0.1, 5e-4, (), 10.0),  # falls along a cosine
        "increment": _schedule(0.1, 5e-4, (), 10.0),
        "tuning": {**_schedule(0.005, 5e-4, (), 10.0), "epochs": 20},
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


def _coder(epochs: int, updates: int) -> dict[str, Any]:
  """How a network that is part of a memory is trained, by Adam."""
  return {
    "coder_epochs": epochs,
    "coder_updates": updates,  # at least so many, by more epochs
    "coder_batch_size": 64,
    "coder_rate": 1e-3,
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
