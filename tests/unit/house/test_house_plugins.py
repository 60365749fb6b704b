"""One registry serves all plug-ins: no module but `detlab.plugins` reads entry points."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
REGISTRY = ROOT / "harness/detlab/plugins.py"


def reads_entry_points(tree: ast.AST) -> bool:
    """Whether a module uses `importlib.metadata.entry_points` or `EntryPoint`."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.alias)}
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return bool((names | attributes) & {"entry_points", "EntryPoint", "EntryPoints"})


@pytest.mark.parametrize(
    "text", ["from importlib.metadata import entry_points", "import importlib.metadata as m\nm.entry_points(group='x')"]
)
def test_a_reader_is_found(text):
    assert reads_entry_points(ast.parse(text))


@pytest.mark.slow
def test_only_the_registry_reads_entry_points():
    readers = [
        path
        for source in ("harness", "hub_ext", "kernel_magics", "server_ext")
        for path in (ROOT / source).rglob("*.py")
        if reads_entry_points(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert readers == [REGISTRY], "make a `Plugins` of the group: docs/reference/plugins.md lists them"
