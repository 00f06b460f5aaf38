#!/usr/bin/env bash
# Checks the style and runs the tests: launch/test.sh [arguments of pytest].
# In a fresh clone it first makes an environment and installs what is needed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment "[test]"
cd "$root"
"$venv/bin/ruff" format --check --quiet .
"$venv/bin/ruff" check --quiet .
# Files are spread over the cores; what a file shares is made once.
exec "$venv/bin/python" -m pytest --numprocesses=auto --dist=loadfile "$@"
