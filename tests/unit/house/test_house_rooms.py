"""Packages stay small, say what lives in them, and import each other in one direction."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = {
    "detlab": ROOT / "harness/detlab",
    "detlab_agent": ROOT / "hub_ext/detlab_agent",
    "detlab_hub": ROOT / "hub_ext/detlab_hub",
    "detlab_magics": ROOT / "kernel_magics/detlab_magics",
    "detlab_server": ROOT / "server_ext/detlab_server",
}
MOST_MODULES = 20


def test_no_module_imports_itself_by_way_of_others_imports_for_types_included():
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=False, cache_dir=None)
    assert len(graph.modules) > 200
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(f"imports go round in a circle: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_a_folder_holds_few_modules_and_says_what_lives_there(package):
    # migrations are scripts that alembic finds by their folder
    folders = {path.parent for path in package.rglob("*.py") if "migrations" not in path.parts}
    counts = {str(folder.relative_to(ROOT)): len([*folder.glob("*.py")]) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MOST_MODULES} == {}
    inits = {folder: folder / "__init__.py" for folder in folders}
    assert [str(folder) for folder, init in inits.items() if not ast.get_docstring(ast.parse(init.read_text()))] == []
