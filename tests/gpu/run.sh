#!/bin/sh
# What no CPU can show: all checks on one real GPU, in at most eight minutes. See README.md.
#
#     sh tests/gpu/run.sh                          needs Linux, Python 3.11 or newer, and torch with a GPU; no network
#     sh tests/gpu/run.sh --cpu [--quick]          a rehearsal without a GPU
#     sh tests/gpu/run.sh --only discovery,oom     some of them; --help lists all
#
# PYTHON names the interpreter (python3). The report is printed last, and written to $OUT/gpu-report.md if OUT is set.
set -u
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d "${TMPDIR:-/tmp}/detgpu.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
trap 'kill "$!"; wait "$!"; exit 130' INT TERM
chmod 755 "$work"  # an agent that runs as root starts trials as other users
"$python" "$here/gpu_unpack.py" "$work/site" || exit 2
# tests/ last: the stand-ins of the rehearsal are there
PYTHONPATH="$work/site:$here/.." PYTHONDONTWRITEBYTECODE=1 "$python" "$here/gpu_run.py" "$@" &
wait $!
