"""Faults to plant: each breaks a promise of docs/explanation/security.md, and tests must fail with it.

`mutants/NAME.toml` says what to change:

    promise = "the first words of the promise's line in the table; empty: it is of no line there"
    file = "the file to change"
    tests = ["the tests that must fail, as pytest names them (without parameters)"]
    build = "hub"       # optional: the front end to build after the change
    quick = true        # optional: planted and tried by `make test`, too, in its turn
    old = '''text that is in the file once'''
    new = '''what takes its place'''

A fault is planted in a copy of the project, with an environment whose packages are this one's but for the copy's own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[1]
ROOTS = ("harness", "hub_ext", "kernel_magics", "server_ext")
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv*", "node_modules", ".*cache", "demo-output", "bench-output")
_SECONDS = 3000
BUILT = {"hub": ("hub_ext/detlab_hub/web/static/hub.js", "hub_ext/detlab_hub/web/static/hub.css")}
"""What a build of a front end writes: in a copy these are the original's own files."""


@dataclass(frozen=True)
class Fault:
    """One change, and the tests that see it."""

    name: str
    promise: str
    file: str
    tests: tuple[str, ...]
    old: str
    new: str
    build: str = ""
    quick: bool = False

    def text(self) -> str:
        """The file as it is."""
        return (REPOSITORY / self.file).read_text(encoding="utf-8")

    def plant(self, project: Path) -> None:
        """Change a copy of the project; the file is a new one, since the copy shares its files with the original."""
        path = project / self.file
        text = path.read_text(encoding="utf-8")
        assert text.count(self.old) == 1
        path.unlink()
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        if self.build:
            for built in BUILT[self.build]:
                (project / built).unlink(missing_ok=True)
            subprocess.run(["node", "build.mjs", self.build], cwd=project / "labextension", check=True)


def faults() -> list[Fault]:
    """All that can be planted."""
    found = []
    for path in sorted((HERE / "mutants").glob("*.toml")):
        said = tomllib.loads(path.read_text(encoding="utf-8"))
        found.append(Fault(path.stem, **{**said, "tests": tuple(said["tests"])}))
    return found


def copy_project(folder: Path) -> None:
    """Make a copy of the project, with an environment that uses it.

    Files are linked where that is possible: nothing but `plant` may change one.
    """
    shutil.copytree(REPOSITORY, folder, ignore=_LEFT_OUT, copy_function=_link, symlinks=True, dirs_exist_ok=True)
    modules = REPOSITORY / "labextension" / "node_modules"
    if modules.exists():
        (folder / "labextension" / "node_modules").symlink_to(modules)
    _make_environment(folder / ".venv", folder)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)


def _make_environment(venv: Path, project: Path) -> None:
    """A virtual environment with this one's packages, in which the project's own are those of the copy."""
    ours = Path(sys.prefix)
    packages = Path("lib") / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    (venv / packages).mkdir(parents=True)
    shutil.copy(ours / "pyvenv.cfg", venv)
    for shared in ("share", "etc", "node"):
        if (ours / shared).exists():
            (venv / shared).symlink_to(ours / shared)
    (venv / "bin").mkdir()
    for program in (ours / "bin").iterdir():
        target = Path(sys.executable).resolve() if re.fullmatch(r"python[\d.]*", program.name) else program
        (venv / "bin" / program.name).symlink_to(target)
    roots = [str(project / root) for root in ROOTS]
    (venv / packages / "project.pth").write_text("\n".join([*roots, str(ours / packages)]) + "\n", encoding="utf-8")


def run_tests(project: Path, nodes: Iterable[str]) -> tuple[bool, str]:
    """Run tests in a copy of the project; return whether all passed, and what pytest printed.

    Modules of unit tests and of others may have the same name, so they are run one after the other.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "DETLAB_ONE_DATABASE", "DETLAB_FAILED_TESTS", "PYTHONPATH"))
    }
    pytest = [
        project / ".venv" / "bin" / "python",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        "-rfE",
        "--tb=short",
    ]
    passed, said = True, ""
    unit = [node for node in nodes if node.startswith("tests/unit/")]
    for chosen in (unit, [node for node in nodes if node not in unit]):
        if chosen:
            done = subprocess.run(
                [*pytest, *chosen],
                cwd=project,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_SECONDS,
                check=False,
            )
            passed, said = passed and done.returncode == 0, said + done.stdout
    return passed, said


def failed(said: str) -> set[str]:
    """The tests that failed, less their parameters, by what pytest printed."""
    return {name.partition("[")[0] for name in re.findall(r"^FAILED (\S+?::\w+)", said, re.MULTILINE)}
