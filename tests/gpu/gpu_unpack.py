"""Make a folder from which Python imports detlab and what it needs: `python gpu_unpack.py FOLDER`.

A wheel is a zip file, so neither pip nor a virtual environment is needed. (An environment made from an environment
would not see torch, either, if that is where it is.) Wheels come from tests/gpu/.wheels, where `wheels.sh` puts them;
without them detlab uses what is installed. Tasks of an agent get the folder too, since detlab itself lies in it.
"""

from __future__ import annotations

import importlib.util
import runpy
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGES = ("harness/detlab", "hub_ext/detlab_agent", "hub_ext/detlab_hub")
KEPT = ("numpy",)
"""Packages of the machine that are used if they are there: torch may have been built with them."""


def fits(name: str) -> bool:
    """Return whether this Python can use a wheel of this file name; which systems it is for `wheels.sh` has chosen."""
    *_, python, abi, _ = name.removesuffix(".whl").split("-")
    version = f"{sys.version_info.major}{sys.version_info.minor}"
    pure = abi == "none" and any(tag in {"py3", "py2.py3", f"py{version}"} for tag in (python, *python.split(".")))
    stable = "abi3" in abi.split(".") and all(int(tag[3:]) <= sys.version_info.minor for tag in python.split("."))
    return pure or stable or python == abi == f"cp{version}"


def unpack(site: Path) -> list[str]:
    """Unpack the wheels that fit and detlab's own packages; return the names of the wheels."""
    # Made now: an agent that sees its folder change takes it for an installation, and starts its warm pool anew.
    (site / "__pycache__").mkdir(parents=True)
    used = []
    for wheel in sorted((HERE / ".wheels").glob("*.whl")):
        if not fits(wheel.name) or (
            wheel.name.partition("-")[0] in KEPT and importlib.util.find_spec(wheel.name.partition("-")[0]) is not None
        ):
            continue
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
        used.append(wheel.name)
    # Git ignores these modules, so that a copy of what it tracks has none.
    runpy.run_path(str(ROOT / "harness" / "make_sync.py"))["make"]()
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, site / Path(package).name, ignore=shutil.ignore_patterns("__pycache__", "static")
        )
    _describe(site)
    return used


def _describe(site: Path) -> None:
    """Write detlab's metadata: its entry points are found by them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = site / f"detlab-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: detlab\nVersion: {project['version']}\n")
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {target}" for name, target in points.items())])
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n", encoding="utf-8")


if __name__ == "__main__":
    unpacked = unpack(Path(sys.argv[1]))
    print(f"{len(unpacked)} wheels are used{'' if unpacked else ': what is installed must do'}")
