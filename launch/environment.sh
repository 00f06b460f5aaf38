# Makes .venv in the project's root and installs the package into it, once.
# Sourced by the scripts beside it, with the extra to install, e.g. "[test]".
#
# A stamp holds a hash of what was installed; only when setup.cfg or
# pyproject.toml has changed is anything installed again.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# Prints the first Python of a version that TensorFlow 2.14 supports. The
# interpreter is really started: a name on the PATH may be an empty shim.
find_python() {
  local name
  for name in "${PYTHON:-}" python3.11 python3.10 python3 python; do
    if [ -n "$name" ] && "$name" -c 'import sys, venv, ensurepip
sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "ibdrr_tf: error: no Python 3.10 or 3.11 with venv was found:" \
    "install one, or name it: PYTHON=/path/to/python3.11 $0" >&2
  return 2
}

prepare_environment() {
  local extra=$1 stamp="$root/.venv/installed$1" wanted python
  wanted=$(cat "$root/setup.cfg" "$root/pyproject.toml" | cksum)
  if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    return
  fi
  if [ ! -x "$root/.venv/bin/python" ]; then
    python=$(find_python) || return
    echo "ibdrr_tf: making $root/.venv and installing, once" >&2
    "$python" -m venv "$root/.venv" || return
    # The pip that comes with Python 3.10 searches for many minutes.
    "$root/.venv/bin/python" -m pip install --quiet --upgrade \
      --disable-pip-version-check pip || return
  fi
  "$root/.venv/bin/python" -m pip install --quiet \
    --disable-pip-version-check --editable "$root$extra" || return
  echo "$wanted" >"$stamp"
}
