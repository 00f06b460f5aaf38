# Makes a virtual environment in the project's root and installs the package
# into it, once. Sourced by the scripts beside it, which then call
# `prepare_environment` with the extra to install, e.g. "[test]".
#
# IBDRR_STACK chooses the TensorFlow, and with it the environment:
#   unset       .venv: TensorFlow 2.14 with Python 3.10 or 3.11; if there is
#               only Python 3.12, TensorFlow 2.17
#   2.14        .venv-2.14: Python 3.10 or 3.11
#   2.17        .venv-2.17: Python 3.11 or 3.12
# PYTHON names an interpreter. If none is found, `uv` fetches one.
#
# A stamp holds a hash of what was installed; only when one of the files that
# describe the package has changed is anything installed again.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv${IBDRR_STACK:+-$IBDRR_STACK}"

# Prints the minor versions of Python 3 that suit the stack, the best first.
python_versions() {
  case ${IBDRR_STACK:-} in
    "") echo 11 10 12 ;;
    2.14) echo 11 10 ;;
    2.17) echo 12 11 ;;
    *)
      echo "ibdrr_tf: error: IBDRR_STACK=$IBDRR_STACK is unknown:" \
        "give 2.14 or 2.17, or leave it out." >&2
      return 2
      ;;
  esac
}

# Prints the first Python of a suitable version, or nothing. The interpreter is
# really started: a name on the PATH may be an empty shim.
find_python() {
  local name
  for name in "${PYTHON:-}" $(printf 'python3.%s ' $1) python3 python; do
    if [ -n "$name" ] && "$name" -c "import sys, venv, ensurepip
sys.exit(str(sys.version_info[1]) not in '$1'.split())" 2>/dev/null; then
      echo "$name"
      return
    fi
  done
}

# Prints the command for uv, or nothing. Its installer puts it into a folder
# that is on the PATH of the next login only.
find_uv() {
  local name
  for name in uv "${HOME:-}/.local/bin/uv"; do
    if "$name" --version >/dev/null 2>&1; then
      echo "$name"
      return
    fi
  done
}

make_environment() {
  local versions python uv
  local cost="once: 0.8 GB to download, 2.5 GB on the disk"
  versions=$(python_versions) || return
  python=$(find_python "$versions")
  uv=$(find_uv)
  if [ -n "$python" ]; then
    echo "ibdrr_tf: making $venv and installing, $cost" >&2
    "$python" -m venv "$venv" || return
    # The pip that comes with Python 3.10 searches for many minutes.
    "$venv/bin/python" -m pip install --quiet --upgrade \
      --disable-pip-version-check pip || return
  elif [ -n "$uv" ]; then
    echo "ibdrr_tf: getting Python 3.${versions%% *} with uv, making $venv" \
      "and installing, $cost" >&2
    "$uv" venv --quiet --seed --python "3.${versions%% *}" "$venv" || return
  else
    echo "ibdrr_tf: error: no Python 3.${versions// / or 3.} with venv was" \
      "found: run 'sudo apt install python3-venv' (Debian 12, Ubuntu 22.04 and" \
      "24.04), or 'curl -LsSf https://astral.sh/uv/install.sh | sh' to get" \
      "uv, which fetches a Python; then run $0 again." >&2
    return 2
  fi
}

prepare_environment() {
  local extra=$1 stamp="$venv/installed$1" wanted
  wanted=$(cat "$root"/{setup.cfg,setup.py,pyproject.toml} | cksum)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    return
  fi
  if [ ! -x "$venv/bin/python" ]; then
    make_environment || return
  fi
  # setuptools warns of every editable installation.
  PYTHONWARNINGS=ignore "$venv/bin/python" -m pip install --quiet \
    --disable-pip-version-check --editable "$root$extra" || return
  echo "$wanted" >"$stamp"
}
