"""Imports point one way: along the flow of the data, never back."""

import ast
import pathlib

import ibdrr_tf

PACKAGE = pathlib.Path(ibdrr_tf.__file__).parent

# Rooms and single modules; each may import those above it, and itself.
ORDER = (
  ("errors",),
  ("keras_version", "choices", "files", "keras_file", "lock", "random_seed"),
  ("config", "curves", "memory_choice"),
  ("data", "classifiers", "evaluation"),
  ("codec",),
  ("distribution", "state"),
  ("training", "state_config", "workdir"),
  ("replay",),
  ("validation", "classifier_training"),
  ("codec_training", "methods", "command_line"),
  ("classifier_folder", "step_evaluation", "learner_report"),
  ("open_state",),
  ("step",),
  ("learner",),
  ("experiment", "learner_commands", "bench"),
  ("main", "compare", "cli"),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# Commands stand at the end of the flow, wherever they live. The package itself
# names its public classes, and imports them when they are used.
COMMANDS = {
  "codec/__main__.py",
  "codec/commands.py",
  "codec_training/command.py",
  "__init__.py",
}


def imported(path: pathlib.Path) -> set[str]:
  """Rooms of this package that a file imports, anywhere in it."""
  found = set()
  for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.Import):
      found |= {alias.name for alias in node.names}
    elif isinstance(node, ast.ImportFrom) and node.module:
      found |= {f"{node.module}.{alias.name}" for alias in node.names}
  parts = [name.split(".") for name in found]
  return {part[1] for part in parts if part[0] == "ibdrr_tf" and part[1:]}


def upward(path: pathlib.Path, package: pathlib.Path = PACKAGE) -> set[str]:
  """What a file imports although it stands later in the flow."""
  relative = path.relative_to(package)
  room = relative.parts[0].removesuffix(".py")
  return {
    other
    for other in imported(path)
    if other != room and RANK[other] >= RANK[room]
  }


def test_no_file_imports_upwards():
  found = {
    str(path.relative_to(PACKAGE)): upward(path)
    for path in PACKAGE.rglob("*.py")
    if str(path.relative_to(PACKAGE)) not in COMMANDS
    and "configs" not in path.parts
  }
  assert {path: names for path, names in found.items() if names} == {}
  assert len(found) > 100


def test_an_import_upwards_is_found(tmp_path):
  file = tmp_path / "data" / "source.py"
  file.parent.mkdir()
  file.write_text("import numpy\nfrom ibdrr_tf import errors, learner\n")
  assert upward(file, tmp_path) == {"learner"}
