#!/bin/sh
# Say what is missing before anything is made: Python 3.11+ and, if asked for, node 20+ and npm.
# Usage: prerequisites.sh PYTHON [node]
set -u
missing=0
need() { echo "missing: $1" >&2; echo "   get it: $2" >&2; missing=1; }
"$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
  need "Python 3.11 or newer with venv (looked at '$1')" "apt-get install python3 python3-venv, or make PYTHON=/path/to/python3.11"
if [ "${2:-}" = node ]; then
  node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 20 ? 0 : 1)' 2>/dev/null ||
    need "node 20 or newer" "https://nodejs.org, or your distribution's nodejs package"
  command -v npm >/dev/null 2>&1 || need "npm" "it comes with node"
fi
[ "$missing" = 0 ] || { echo "Nothing was changed. Run the command again when these are there." >&2; exit 1; }
