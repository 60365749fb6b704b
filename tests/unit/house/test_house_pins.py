"""What is pinned can be installed with each Python that we say is enough."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]


def test_no_pin_wants_a_newer_python_than_the_project() -> None:
    """`make demo` ended in an error of pip on Debian 12, whose Python is 3.11.2: a pin wanted 3.11.5."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (least,) = SpecifierSet(project["requires-python"])
    assert least.operator == ">="
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(Requirement(line).name) for line in lines if line and not line.startswith("#")}
    wanted = {
        canonicalize_name(found.name): found.metadata["Requires-Python"] or ""
        for found in metadata.distributions()
        if canonicalize_name(found.name) in pinned
    }
    assert len(wanted) > len(pinned) // 2
    assert {name: said for name, said in wanted.items() if f"{least.version}.0" not in SpecifierSet(said)} == {}
