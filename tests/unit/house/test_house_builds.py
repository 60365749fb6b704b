"""Wheels, source distributions and editable installations have the blocking client, which git has not."""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARTS = (
    ".gitignore",
    "LICENSE",
    "README.md",
    "docs/tutorial",
    "examples",
    "harness",
    "hub_ext",
    "kernel_magics",
    "pyproject.toml",
    "server_ext",
)
MADE = tuple(runpy.run_path(str(ROOT / "harness" / "make_sync.py"))["MODULES"].values())


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone of the repository has of all that is built: no module that git ignores."""
    root = tmp_path_factory.mktemp("clone")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, root / part, ignore=shutil.ignore_patterns("__pycache__", "static"))
        else:
            shutil.copy(ROOT / part, root / part)
    for name in MADE:
        (root / "harness" / "detlab" / "client" / name).unlink()
    return root


def build(root: Path, *options: str) -> None:
    """Build in a folder by what `pyproject.toml` says, without the front ends."""
    command = [sys.executable, "-m", "hatchling", "build", *options]
    environment = {**os.environ, "SKIP_JUPYTER_BUILDER": "1"}
    done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_a_clone_gives_a_source_distribution_and_that_a_wheel_with_the_blocking_client(
    clone: Path, tmp_path: Path
) -> None:
    build(clone, "-t", "sdist")
    [archive] = (clone / "dist").iterdir()
    subprocess.run(["tar", "-xzf", archive, "-C", tmp_path], check=True)
    [root] = tmp_path.iterdir()
    for name in MADE:
        (root / "harness" / "detlab" / "client" / name).unlink()
    build(root, "-t", "wheel")
    [archive] = (root / "dist").iterdir()
    with zipfile.ZipFile(archive) as file:
        names = file.namelist()
    assert set(names).issuperset(f"detlab/client/{name}" for name in MADE)
    assert not [name for name in names if "make_sync" in name or "build_hook" in name]


def test_an_editable_installation_makes_the_blocking_client_in_the_tree(clone: Path) -> None:
    client = clone / "harness" / "detlab" / "client"
    for name in MADE:
        (client / name).unlink(missing_ok=True)
    build(clone, "-t", "wheel:editable", "--hooks-only")
    for name in MADE:
        assert (client / name).read_bytes() == (ROOT / "harness" / "detlab" / "client" / name).read_bytes()
