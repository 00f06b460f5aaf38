#!/usr/bin/env bash
# Runs an experiment with several workers of this machine, over loopback:
# launch/multi_worker.sh WORKERS [flags of python -m ibdrr_tf.main].
# In a fresh clone it first makes an environment and installs what is needed.
#
# Worker 0, the chief, speaks; what the others say is in their log files. When
# one of them ends in failure, the others are stopped. Ports begin at
# IBDRR_PORT, else at 12345.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
workers=${1:-}
if ! [[ $workers =~ ^[1-9][0-9]*$ ]]; then
  echo "ibdrr_tf: error: the number of workers is missing:" \
    "launch/multi_worker.sh 2 --phases=5" >&2
  exit 2
fi
shift
prepare_environment ""

first_port=${IBDRR_PORT:-12345}
addresses=""
for ((i = 0; i < workers; i++)); do
  addresses+="${addresses:+, }\"127.0.0.1:$((first_port + i))\""
done
logs=$(mktemp -d)
pids=()
for ((i = workers - 1; i >= 0; i--)); do
  export TF_CONFIG="{\"cluster\": {\"worker\": [$addresses]},
    \"task\": {\"type\": \"worker\", \"index\": $i}}"
  command=("$venv/bin/python" -m ibdrr_tf.main
    --distribute=multi_worker "$@")
  if ((i)); then
    "${command[@]}" >"$logs/worker-$i.log" 2>&1 &
  else
    "${command[@]}" &
  fi
  pids+=($!)
done
# A worker that waits for another one may not listen to the first signal.
stop_workers() {
  local i
  for ((i = 0; i < 50; i++)); do
    kill "${pids[@]}" 2>/dev/null || return 0
    sleep 0.2
  done
  kill -9 "${pids[@]}" 2>/dev/null || true
}
trap stop_workers EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The first failure is everyone's; without any, the chief has finished.
for ((i = 0; i < workers; i++)); do
  code=0
  wait -n || code=$?
  if ((code)); then
    sleep 5 # The others notice by themselves, and say so.
    echo "ibdrr_tf: a worker ended with exit code $code; logs of all but the" \
      "chief are in $logs" >&2
    exit "$code"
  fi
done
rm -r "$logs"
