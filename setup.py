"""Chooses between the two stacks where Python has both, which is 3.11.

    pip install .                    TensorFlow 2.14 on 3.10 and 3.11, else 2.17
    IBDRR_STACK=2.17 pip install .   TensorFlow 2.17 on 3.11 too

An extra could only add requirements, and here some have to go. Everything else
about the package is in setup.cfg.
"""

import configparser
import os
import pathlib
import sys

import setuptools

# The first Python that has TensorFlow 2.17, for each choice of a user.
_FIRST_PYTHON = {"": "3.12", "2.14": "3.12", "2.17": "3.11"}


def _requirements() -> dict:
  """The requirements of setup.cfg for the stack that IBDRR_STACK names."""
  stack = os.environ.get("IBDRR_STACK", "")
  if stack not in _FIRST_PYTHON:
    sys.exit(f"ibdrr_tf: error: IBDRR_STACK={stack} is not 2.14 or 2.17.")
  config = configparser.ConfigParser()
  config.read(pathlib.Path(__file__).with_name("setup.cfg"), encoding="utf-8")

  def chosen(text: str) -> str:
    return text.replace('"3.12"', f'"{_FIRST_PYTHON[stack]}"')

  extras = config["options.extras_require"]
  return {
    "install_requires": chosen(config["options"]["install_requires"]),
    "extras_require": {name: chosen(extras[name]) for name in extras},
  }


setuptools.setup(**_requirements())
