"""Scripts that start several workers, with stand-ins for what they start."""

import json
import os
import subprocess
from pathlib import Path

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
    ["bash", LAUNCH / "slurm.sbatch", "--phases=5", "--workdir=a b"],
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
    assert line[end:].split() == [
      *("-m", "ibdrr_tf.main", "--distribute=multi_worker", "--resume"),
      *("--phases=5", "--workdir=a", "b"),
    ]


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
