"""The configuration of a learner: what its state keeps, and what may change."""

import json
from typing import Any

import ml_collections

from ibdrr_tf import config as defaults
from ibdrr_tf.config import CIRCUMSTANCES
from ibdrr_tf.errors import UserError
from ibdrr_tf.state import State

__all__ = ["check_fixed", "config_of", "to_stored"]

# Fields that a state keeps from its first step on: they say what the network
# and the codec are. Others say how to train, which may differ by step.
_FIXED = (
  "method",
  "codec",
  "vqvae",
  "classifier.backbone",
  "classifier.stem",
  "classifier.width",
  "memory.sheet",
)
# The same for networks that are part of a method's memory.
_FIXED_SIZES = {
  "dgr": ("widths", "latent"),
  "scalable_recollections": ("widths", "variables", "categories"),
  "aqm": ("widths", "entries", "depths"),
  "eec": ("widths", "depth"),
}


def config_of(state: State | None) -> ml_collections.ConfigDict:
  """The configuration of a state, or that of a new one."""
  config = defaults.learner_config()
  if state is not None:
    defaults.update_known(config, state.config)
  return config


def to_stored(config: ml_collections.ConfigDict) -> dict[str, Any]:
  """A configuration as JSON, without where and on what devices it ran."""
  fields = json.loads(config.to_json())
  return {k: v for k, v in fields.items() if k not in CIRCUMSTANCES}


def check_fixed(
  config: ml_collections.ConfigDict, stored: dict[str, Any]
) -> None:
  """Refuses a configuration of another network or codec than the state's.

  Args:
    config: what is asked for.
    stored: what the state has, as `to_stored` gives it.
  """
  wanted = to_stored(config)
  sizes = _FIXED_SIZES.get(config.method, ())
  for path in (*_FIXED, *(f"{config.method}.{name}" for name in sizes)):
    mine, theirs = wanted, stored
    for name in path.split("."):
      mine, theirs = mine[name], theirs[name]
    if mine != theirs:
      raise UserError(
        f"config.{path} is {theirs!r} in this state: leave it out, or start "
        f"another state."
      )
