#!/usr/bin/env bash
# Runs an experiment: launch/run.sh [flags of python -m ibdrr_tf.main].
# In a fresh clone it first makes an environment and installs what is needed.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
prepare_environment ""
exec "$venv/bin/python" -m ibdrr_tf.main "$@"
