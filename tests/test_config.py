"""The recipes in `configs/`, and the numbers of the baselines."""

import pathlib

import pytest
from absl import flags

from ibdrr_tf import command_line
from ibdrr_tf.config import baselines
from ibdrr_tf.errors import UserError
from ibdrr_tf.methods import check_method
from ibdrr_tf.validation import validate


def test_baselines_have_their_authors_numbers():
  """As their papers and released programs state them."""
  sections = baselines()
  published = {
    "lwf": (200, 250),
    "icarl": (200, 170),
    "lucir": (160, 160),
    "mnemonics": (160, 160),
    "wa": (200, 170),
    "der": (200, 170),
    "mrdc": (160, 160),
    "podnet": (160, 160),
    "gfr": (201, 201),
    "ewc": (200, 180),
    "si": (200, 180),
  }
  assert {n for n, s in sections.items() if "base" in s} == set(published)
  schedules = {
    name: tuple(
      (part.learning_rate, part.weight_decay, part.decay_factor)
      + tuple(round(share * epochs) for share in part.milestones)
      for part, epochs in zip(
        (sections[name].base, sections[name].increment), lasts, strict=True
      )
    )
    for name, lasts in published.items()
  }
  lucir = (0.1, 5e-4, 10.0, 80, 120)
  regulariser = (
    (0.1, 5e-4, 10.0, 60, 120, 170),
    (0.1, 2e-4, 10.0, 70, 120, 150),
  )
  assert schedules == {
    "lwf": (
      (0.1, 5e-4, 10.0, 60, 120, 160),
      (0.1, 2e-4, 10.0, 60, 120, 180, 220),
    ),
    "icarl": ((0.1, 5e-4, 10.0, 60, 120, 170), (0.1, 2e-4, 10.0, 80, 120)),
    "lucir": (lucir, lucir),
    "mnemonics": (lucir, lucir),
    "wa": ((0.1, 5e-4, 10.0, 60, 120, 170), (0.1, 2e-4, 10.0, 60, 100, 140)),
    "der": ((0.1, 5e-4, 10.0, 60, 120, 170), (0.1, 2e-4, 10.0, 80, 120, 150)),
    "mrdc": (lucir, lucir),
    "podnet": ((0.1, 5e-4, 10.0),) * 2,
    "gfr": ((1e-3, 2e-4, 10.0, 200),) * 2,
    "ewc": regulariser,
    "si": regulariser,
  }
  gfr = sections["gfr"]
  rounds = [share * gfr.generator_epochs for share in gfr.generator_milestones]
  assert rounds == pytest.approx([200, 400])
  assert 1 / gfr.generator_decay_factor == pytest.approx(0.3)
  assert (gfr.generator_rate, gfr.critic_steps, gfr.penalty) == (1e-4, 5, 10.0)


@pytest.mark.parametrize(
  ("variant", "epochs", "backbone"),
  [
    ("lwf", (160, 160), "resnet32"),
    ("lwf_pycil", (200, 250), "resnet32"),
    ("icarl_pycil", (200, 170), "resnet32"),
    ("icarl_original", (70, 70), "resnet32"),
    ("lucir", (160, 160), "resnet32"),
    ("mnemonics", (160, 160), "resnet32"),
    ("podnet", (160, 160), "resnet32"),
    ("der", (160, 160), "resnet32"),
    ("gfr", (201, 201), "resnet18"),
  ],
)
def test_baselines_are_variants_of_one_config(variant, epochs, backbone):
  path = pathlib.Path(__file__).parents[1] / "configs/cifar100_baselines.py"
  config, _ = command_line.parse_config(
    _run_flags(), ["main", f"--config={path}:{variant}"]
  )
  validate(config)
  check_method(config)
  assert config.classifier.backbone == backbone
  section = config[config.method]
  assert epochs == tuple(
    section[part].epochs or config.classifier.epochs
    for part in ("base", "increment")
  )


@pytest.mark.parametrize("name", ["cifar100", "imagenet_subset"])
def test_the_paper_s_configs_keep_the_paper_s_lambda(name):
  path = pathlib.Path(__file__).parents[1] / f"configs/{name}.py"
  config, _ = command_line.parse_config(_run_flags(), ["m", f"--config={path}"])
  assert config.ib.weight == 0.005  # Section 5, where the default is larger.


@pytest.mark.parametrize(
  ("name", "expected"),
  [
    ("demo", ("shapes", 0, 5, "ib_drr")),  # 0 is half of the classes.
    ("cifar100", ("cifar100", 50, 5, "ib_drr")),
    ("cifar100_mini", ("cifar100", 10, 5, "ib_drr")),
    ("cifar100_small", ("cifar100", 50, 5, "ib_drr")),
    ("imagenet_subset", ("folder", 50, 5, "ib_drr")),
    ("folder", ("folder", 0, 5, "ib_drr")),
  ],
)
def test_every_config_is_valid(name, expected):
  path = pathlib.Path(__file__).parents[1] / f"configs/{name}.py"
  config, _ = command_line.parse_config(_run_flags(), ["m", f"--config={path}"])
  validate(config)
  check_method(config)
  scenario = config.scenario
  assert expected == (
    *(config.dataset, scenario.base_classes, scenario.phases, config.method),
  )


def test_an_unknown_variant_is_named():
  path = pathlib.Path(__file__).parents[1] / "configs/cifar100_baselines.py"
  with pytest.raises(UserError, match=r"'foster'.*lucir"):
    command_line.parse_config(_run_flags(), ["main", f"--config={path}:foster"])


def _run_flags():
  values = flags.FlagValues()
  command_line.define_run_flags(values)
  return values
