"""Scripts that start several workers, with stand-ins for what they start."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[1] / "launch"

# Instead of Python: says what it was given.
ECHO = """#!/bin/sh
echo "$TF_CONFIG" | tr -d "\\n"
echo " $@"
"""


def script(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text(text)
  path.chmod(0o755)


def test_slurm_s_variables_become_a_cluster(tmp_path):
  script(tmp_path / ".venv/bin/python", ECHO)
  # SLURM's own commands: one task a node.
  script(
    tmp_path / "bin/srun",
    '#!/bin/sh\nshift\nfor i in 0 1; do SLURM_PROCID=$i "$@"; done\n',
  )
  script(
    tmp_path / "bin/scontrol",
    '#!/bin/sh\n[ "$3" = "node[1-2]" ] && printf "node1\\nnode2\\n"\n',
  )
  result = subprocess.run(
    ["bash", LAUNCH / "slurm.sbatch", "--phases=5", "--workdir=a  b*"],
    env=os.environ
    | {
      "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
      "SLURM_SUBMIT_DIR": str(tmp_path),
      "SLURM_JOB_NODELIST": "node[1-2]",
      "IBDRR_PORT": "777",
    },
    capture_output=True,
    text=True,
    check=True,
  )
  lines = result.stdout.splitlines()
  assert len(lines) == 2
  for index, line in enumerate(lines):
    config, end = json.JSONDecoder().raw_decode(line)
    assert config["cluster"] == {"worker": ["node1:777", "node2:777"]}
    assert config["task"] == {"type": "worker", "index": index}
    # Two spaces: an argument without quotes would come in two words.
    assert line[end:] == (
      " -m ibdrr_tf.main --distribute=multi_worker --resume --phases=5 "
      "--workdir=a  b*"
    )


def run_slurm(tmp_path, srun):
  """Runs the batch script with a stand-in for srun."""
  script(tmp_path / "bin/srun", f"#!/bin/sh\n{srun}\n")
  script(tmp_path / "bin/scontrol", '#!/bin/sh\necho "$@"\n')
  return subprocess.run(
    ["bash", LAUNCH / "slurm.sbatch"],
    env=os.environ
    | {
      "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
      "SLURM_SUBMIT_DIR": str(tmp_path),
      "SLURM_JOB_ID": "42",
    },
    capture_output=True,
    text=True,
    check=False,
    timeout=60,
  )


def test_a_job_whose_time_is_almost_up_comes_again(tmp_path):
  result = run_slurm(tmp_path, "kill -USR1 $PPID; sleep 1; exit 3")
  assert result.stdout.split() == ["requeue", "42"]
  assert result.returncode == 3  # It has waited for its tasks.


def test_a_job_ends_as_its_tasks_do(tmp_path):
  for status in (0, 75):
    result = run_slurm(tmp_path, f"exit {status}")
    assert (result.returncode, result.stdout) == (status, "")


def test_the_number_of_workers_must_be_given():
  for arguments in ([], ["--phases=5"], ["0"]):
    result = subprocess.run(
      ["bash", LAUNCH / "multi_worker.sh", *arguments],
      capture_output=True,
      text=True,
      check=False,
    )
    assert result.returncode == 2
    assert "number of workers is missing" in result.stderr
    assert result.stderr.count("\n") == 1


# Instead of a Python 3.12 that is empty but for venv and ensurepip: writes down
# what it is asked to do.
PYTHON = """#!/bin/sh
if [ "$1" = -c ]; then
  exec {real} -c "$(echo "$2" | sed "s/sys.version_info.1./{minor}/")"
fi
echo "python3.{minor} $@" >>{log}
if [ "$2" = venv ]; then
  mkdir -p "$3/bin"
  cp "$0" "$3/bin/python"
  echo "#!/bin/sh" >"$3/bin/ruff"
  chmod +x "$3/bin/ruff"
fi
"""
UV = """#!/bin/sh
[ "$1" = --version ] && exit
echo "uv $@" >>{log}
for folder; do :; done
mkdir -p "$folder/bin"
printf '#!/bin/sh\\necho "python of uv $@" >>{log}\\n' >"$folder/bin/python"
chmod +x "$folder/bin/python"
"""


@pytest.fixture
def launch(tmp_path):
  """Runs launch/run.sh of a clone on a machine that has only some commands."""
  clone = tmp_path / "clone"
  shutil.copytree(LAUNCH, clone / "launch")
  for name in ("setup.cfg", "setup.py", "pyproject.toml"):
    shutil.copy(LAUNCH.parent / name, clone)
  log = tmp_path / "log"
  for name in (
    "bash",
    "cat",
    "chmod",
    "cksum",
    "cp",
    "dirname",
    "mkdir",
    "mktemp",
    "rm",
    "sed",
    "sleep",
  ):
    (tmp_path / "bin").mkdir(exist_ok=True)
    (tmp_path / "bin" / name).symlink_to(shutil.which(name))

  def run(
    pythons=(), uv="", stack="", name="run.sh", arguments=("--phases=5",)
  ):
    for minor in pythons:
      text = PYTHON.format(real=sys.executable, minor=minor, log=log)
      script(tmp_path / f"bin/python3.{minor}", text)
    if uv:
      script(tmp_path / uv, UV.format(log=log))
    environment = {
      "HOME": str(tmp_path / "home"),
      "PATH": str(tmp_path / "bin"),
      "IBDRR_STACK": stack,
    }
    done = subprocess.run(
      ["bash", clone / "launch" / name, *arguments],
      env=environment,
      capture_output=True,
      text=True,
      check=False,
    )
    lines = log.read_text().splitlines() if log.exists() else []
    return done, [line.replace(f"{clone}", "CLONE") for line in lines]

  return run


@pytest.mark.parametrize(
  ("pythons", "stack", "chosen", "folder"),
  [
    ((10, 11, 12), "", 11, ".venv"),
    ((10, 12), "", 10, ".venv"),
    ((12,), "", 12, ".venv"),
    ((10, 11, 12), "2.17", 12, ".venv-2.17"),
    ((10, 11), "2.17", 11, ".venv-2.17"),
    ((10, 12), "2.14", 10, ".venv-2.14"),
  ],
)
def test_a_python_that_suits_the_stack_is_taken(
  launch, pythons, stack, chosen, folder
):
  done, log = launch(pythons, stack=stack)
  assert done.returncode == 0, done.stderr
  assert log[0] == f"python3.{chosen} -m venv CLONE/{folder}"
  assert log[-2].endswith("--editable CLONE")
  assert log[-1] == f"python3.{chosen} -m ibdrr_tf.main --phases=5"
  _, again = launch(pythons, stack=stack)
  assert again[len(log) :] == log[-1:]  # Nothing is installed twice.


@pytest.mark.parametrize(
  ("name", "before", "command"),
  [
    ("run.sh", [], "ibdrr_tf.main"),
    ("test.sh", [], "pytest --numprocesses=auto --dist=loadfile"),
    (
      "multi_worker.sh",
      ["1"],
      "ibdrr_tf.main --distribute=multi_worker",
    ),
  ],
)
def test_arguments_arrive_as_they_were_typed(launch, name, before, command):
  typed = ["--workdir=a  b", "*", "it's", ""]
  done, log = launch((11,), name=name, arguments=[*before, *typed])
  assert done.returncode == 0, done.stderr
  assert log[-1] == f"python3.11 -m {command} --workdir=a  b * it's "


@pytest.mark.parametrize(
  ("stack", "version", "uv"),
  [("", 11, "bin/uv"), ("2.17", 12, "home/.local/bin/uv")],
)
def test_uv_gets_a_python_where_there_is_none(launch, stack, version, uv):
  """Also where its installer has just put it."""
  done, log = launch((9, 13), uv=uv, stack=stack)
  assert done.returncode == 0, done.stderr
  assert log[0].startswith(f"uv venv --quiet --seed --python 3.{version} ")
  assert log[-1] == "python of uv -m ibdrr_tf.main --phases=5"


@pytest.mark.parametrize(
  ("pythons", "stack", "told"),
  [
    ((), "", "no Python 3.11 or 3.10 or 3.12 "),
    ((12, 13), "2.14", "no Python 3.11 or 3.10 "),
    ((10,), "2.17", "no Python 3.12 or 3.11 "),
  ],
)
def test_without_a_python_two_commands_are_named(launch, pythons, stack, told):
  done, log = launch(pythons, stack=stack)
  assert done.returncode == 2 and not log
  assert done.stderr.count("\n") == 1 and told in done.stderr
  assert "'sudo apt install python3-venv'" in done.stderr
  assert "'curl -LsSf https://astral.sh/uv/install.sh | sh'" in done.stderr


def test_an_unknown_stack_is_refused(launch):
  done, log = launch((11,), stack="2.16")
  assert done.returncode == 2 and not log
  assert done.stderr.count("\n") == 1 and "give 2.14 or 2.17" in done.stderr
