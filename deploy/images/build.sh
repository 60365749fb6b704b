#!/bin/sh
# Build the images from this checkout: sh deploy/images/build.sh [REGISTRY/] [TAG] [hub|agent|tasks]
#   sh deploy/images/build.sh                            detlab-hub:0.1.0, detlab-agent:0.1.0, detlab-tasks:0.1.0
#   sh deploy/images/build.sh registry.example.org/lab/  … under that registry, to be pushed from here
# These may be set: BASE, EXTRAS_HUB, EXTRAS_AGENT, EXTRAS_TASKS; WHEELS, a folder of further wheels, and OFFLINE=1 to take
# nothing else; DOCKER, the program (docker; podman will do).
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
registry=${1:-}
python=$([ -x "$root/.venv/bin/python" ] && echo "$root/.venv/bin/python" || echo python3)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
"$python" -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir "$context" "$root"
cp "$root/constraints.txt" "$context/"
[ -z "${WHEELS:-}" ] || cp "$WHEELS"/*.whl "$context/"
version=$(basename "$context"/detlab-*.whl | cut -d- -f2)
tag=${2:-$version}
build() { # name, extras
  set -- "$1" "$2" --file "$root/deploy/images/$1.Dockerfile" --tag "${registry}detlab-$1:$tag"
  name=$1 extras=$2
  shift 2
  [ -z "$extras" ] || set -- "$@" --build-arg "EXTRAS=$extras"
  [ -z "${BASE:-}" ] || set -- "$@" --build-arg "BASE=$BASE"
  [ -z "${OFFLINE:-}" ] || set -- "$@" --build-arg PIP_NO_INDEX=1
  ${DOCKER:-docker} build --quiet "$@" "$context" > /dev/null
  echo "${registry}detlab-$name:$tag"
}
only=${3:-}
[ "${only:-hub}" != hub ] || build hub "${EXTRAS_HUB:-}"
[ "${only:-agent}" != agent ] || build agent "${EXTRAS_AGENT:-}"
[ "${only:-tasks}" != tasks ] || build tasks "${EXTRAS_TASKS:-}"
