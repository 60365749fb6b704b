#!/bin/sh
# Put what detlab needs beside torch into tests/gpu/.wheels, to be carried to a machine without a network.
#
#     sh tests/gpu/wheels.sh                 for Python 3.12 on x86-64
#     sh tests/gpu/wheels.sh 3.11 3.13       for other versions: that of the machine's Python with torch
#     ARCH=aarch64 sh tests/gpu/wheels.sh
#
# Versions are those of constraints.txt. The folder is ignored by git: carry it along by name.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYTHON:-python3}
arch=${ARCH:-x86_64}
limit=64
rm -rf "$here/.wheels"
mkdir "$here/.wheels"
needs=$("$python" - "$root/pyproject.toml" <<'END'
import re, sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
extras = project["optional-dependencies"]
left_out = {"torch", "tensorboard", "docker"}  # the machine has it, no check needs it
needs = [*project["dependencies"], *extras["torch"], *extras["agent"]]
print("\n".join(dict.fromkeys(need for need in needs if re.match(r"[\w.-]+", need)[0] not in left_out)))
END
)
[ $# -gt 0 ] || set -- 3.12
for version in "$@"; do
    # Wheels of old and new tags are both taken. A requirement has no blanks.
    # shellcheck disable=SC2086
    "$python" -m pip --disable-pip-version-check download --quiet --only-binary :all: --implementation cp \
        --python-version "$version" --constraint "$root/constraints.txt" --dest "$here/.wheels" \
        --platform "manylinux_2_28_$arch" --platform "manylinux_2_27_$arch" --platform "manylinux_2_17_$arch" \
        --platform "manylinux2014_$arch" $needs
done
size=$(du -sm "$here/.wheels" | cut -f1)
echo "$(find "$here/.wheels" -name '*.whl' | wc -l) wheels, $size MiB, in $here/.wheels"
[ "$size" -lt "$limit" ] || { echo "that is more than $limit MiB: name fewer versions" >&2; exit 1; }
