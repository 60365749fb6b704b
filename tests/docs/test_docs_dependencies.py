"""docs/reference/dependencies.md lists what pyproject.toml installs, with the right extras, and nothing else."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from docs_snippets import DOCS, ROOT


def declared() -> dict[str, set[str]]:
    """Package -> extras that install it by name, `base` for none."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = pyproject["project"]
    groups = {
        "base": project["dependencies"],
        "build": pyproject["build-system"]["requires"],
        **project["optional-dependencies"],
        **pyproject["dependency-groups"],
    }
    found: dict[str, set[str]] = {}
    for extra, requirements in groups.items():
        for requirement in requirements:
            if not isinstance(requirement, str):
                continue  # a group within a group
            name = re.split(r"[\s\[<>=!~;]", requirement, maxsplit=1)[0].lower().replace("_", "-")
            if name != "detlab":
                found.setdefault(name, set()).add(extra)
    return found


def from_npm() -> set[str]:
    """What npm installs by name: the packages of the front ends, and the proxy."""
    package = json.loads((ROOT / "labextension" / "package.json").read_text(encoding="utf-8"))
    return {*package.get("dependencies", {}), *package.get("devDependencies", {})}


def listed(*, npm: bool = False) -> dict[str, set[str]]:
    """Package -> extras, as the page says; those of npm, or the others."""
    text = (DOCS / "reference" / "dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", text, re.MULTILINE)
    found: dict[str, set[str]] = {}
    for names, extras, why in rows:
        if names in {"package", "---"} or set(names) == {"-"}:
            continue
        assert why.strip(), names
        if npm is not names.endswith(" (npm)"):
            continue
        for name in names.removesuffix(" (npm)").split(","):
            found[name.strip().lower().replace("_", "-")] = {extra.strip() for extra in extras.split(",")}
    return found


def test_every_dependency_has_its_line_and_every_line_its_dependency() -> None:
    assert listed().keys() == declared().keys()


def test_the_same_for_npm() -> None:
    assert listed(npm=True).keys() == from_npm()


@pytest.mark.parametrize("package", sorted(declared()))
def test_the_line_names_the_extras(package: str) -> None:
    assert listed().get(package) == declared()[package]
