"""The package as pip sees it: requirements, version and wheel."""

import importlib.metadata
import json
import pathlib
import re
import runpy
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import setuptools
from packaging.requirements import Requirement
from processes import TINY_REPLAY

import ibdrr_tf

ROOT = pathlib.Path(__file__).parents[1]


@pytest.fixture
def requirements(monkeypatch):
  """What pip installs for a Python and a choice of stack, by name."""

  def of(python, stack, extra=""):
    given = {}
    monkeypatch.setattr(setuptools, "setup", given.update)
    monkeypatch.setenv("IBDRR_STACK", stack)
    runpy.run_path(str(ROOT / "setup.py"))
    text = (
      given["extras_require"][extra] if extra else given["install_requires"]
    )
    found = {}
    for line in text.splitlines():
      if line and not line.startswith("#"):
        needed = Requirement(line)
        marker = needed.marker
        if not marker or marker.evaluate({"python_version": python}):
          assert needed.name not in found
          found[needed.name] = needed.specifier
    return found

  return of


@pytest.mark.parametrize(
  ("python", "stack", "tensorflow"),
  [
    ("3.10", "", "2.14.1"),
    ("3.11", "", "2.14.1"),
    ("3.11", "2.14", "2.14.1"),
    ("3.11", "2.17", "2.17.1"),
    ("3.12", "", "2.17.1"),
    ("3.12", "2.17", "2.17.1"),
  ],
)
def test_each_python_gets_one_stack(requirements, python, stack, tensorflow):
  found = requirements(python, stack)
  assert found["tensorflow"].contains(tensorflow)
  old = {"keras", "tensorflow-compression"}
  new = {"tf-keras", "tensorflow-compression-ops"}
  is_old = tensorflow.startswith("2.14")
  assert set(found) & (old | new) == (old if is_old else new)
  gpu = requirements(python, stack, "gpu")
  assert any(name.endswith("-cu11") for name in gpu) == is_old
  assert ("tensorflow" in gpu) == (not is_old)


def test_an_unknown_stack_is_refused(requirements):
  with pytest.raises(SystemExit, match=r"IBDRR_STACK=2.15 is not 2.14 or 2.17"):
    requirements("3.11", "2.15")


def test_the_version_is_written_once():
  text = (ROOT / "setup.cfg").read_text()
  (version,) = re.findall(r"^version = (.*)$", text, re.MULTILINE)
  assert ibdrr_tf.__version__ == version
  assert importlib.metadata.version("ibdrr_tf") == version


KERAS_3_FIRST = """
import tensorflow as tf
tf.keras.Model  # Here TensorFlow decides for one of them.
import ibdrr_tf
print(ibdrr_tf.UserError)
"""


def test_keras_3_before_the_package_is_refused():
  """Where there is a Keras 3; else nothing is in the way."""
  environment = {"PATH": "", "TF_CPP_MIN_LOG_LEVEL": "3"}
  done = subprocess.run(
    [sys.executable, "-c", KERAS_3_FIRST],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  if importlib.metadata.version("keras").startswith("2."):
    assert done.returncode == 0, done.stderr
  else:
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "UserError: tf.keras is Keras 3" in last
    assert "import ibdrr_tf before" in last


@pytest.mark.slow
def test_a_wheel_works_in_an_empty_environment_and_any_folder(tmp_path):
  """Downloads, or takes from pip's cache, all that the package needs."""

  def run(*command, **options):
    done = subprocess.run(
      list(map(str, command)),
      capture_output=True,
      text=True,
      check=False,
      **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout

  pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
  run(*pip, "--wheel-dir", tmp_path, ROOT)
  (wheel,) = tmp_path.glob("*.whl")
  with zipfile.ZipFile(wheel) as file:
    names = set(file.namelist())
  for config in (ROOT / "configs").glob("*.py"):
    assert f"ibdrr_tf/configs/{config.name}" in names
  assert "ibdrr_tf/codec/pretrained/cifar100/vqvae.ibvq" in names
  assert {f"ibdrr_tf/evaluation/page/page.{k}" for k in ("css", "js")} <= names
  assert not [name for name in names if name.startswith(("tests", "configs"))]

  run(sys.executable, "-m", "venv", tmp_path / "venv")
  binaries = tmp_path / "venv" / "bin"
  run(binaries / "python", "-m", "pip", "install", "--quiet", wheel)
  other = tmp_path / "other"
  other.mkdir()
  images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
  np.save(other / "in.npy", images)
  ibdrr = [binaries / "ibdrr"]
  run(*ibdrr, "codec", "compress", "in.npy", "-o", "x.ibdrr", cwd=other)
  run(*ibdrr, "codec", "decompress", "x.ibdrr", "-o", "out.npy", cwd=other)
  assert np.load(other / "out.npy").shape == images.shape
  flags = ["--config=demo", "--method=finetune", "--workdir=w", *TINY_REPLAY]
  run(*ibdrr, "run", *flags, cwd=other)
  results = json.loads((other / "w" / "results.json").read_text())
  assert len(results["phases"]) == 2
