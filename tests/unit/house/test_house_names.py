"""A public class name stands once in the product: a search for it, a traceback and a sentence mean one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROOMS = ("harness", "hub_ext", "kernel_magics", "server_ext")
HANDLERS = ROOT / "hub_ext/detlab_hub/web"
"""Its classes are named by the resource that they serve, and nobody imports them."""
BOTH_ARE_PUBLIC = {
    "DownloadMode": "detlab.client and detlab.core export one each, as Determined does",
    "SearchMethod": "the base of users' search classes, and that of plug-ins of the group detlab.searchers",
    "Shutdown": "an answer of users' search classes, and an event that journals hold by its name",
}


def public_classes(text: str) -> list[str]:
    """The classes at the top of a module that have no leading underscore."""
    return [one.name for one in ast.parse(text).body if isinstance(one, ast.ClassDef) and not one.name.startswith("_")]


def twice(modules: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Names of public classes in several modules, with these; `modules` are of (name, text)."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, text in modules:
        for name in public_classes(text):
            found[name].append(module)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def product() -> dict[str, list[str]]:
    """The names of the product that stand in several modules."""
    files = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py") if not path.is_relative_to(HANDLERS))
    return twice((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in files)


def test_a_name_in_two_modules_is_found():
    one, two = "class Plan: pass\nclass _Row: pass\n", "class Plan: pass\nclass _Row: pass\nclass Other: pass\n"
    assert twice([("a.py", one), ("b.py", two)]) == {"Plan": ["a.py", "b.py"]}


@pytest.mark.slow
def test_a_public_class_name_stands_once():
    assert {name: places for name, places in product().items() if name not in BOTH_ARE_PUBLIC} == {}, (
        "say in the name what it is in its domain: BackupManifest, MountPlan, SlurmJob"
    )


@pytest.mark.slow
def test_the_exceptions_are_needed():
    assert product().keys() >= BOTH_ARE_PUBLIC.keys()
