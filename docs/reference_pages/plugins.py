"""The page of plug-ins: every group of entry points, found where the code makes its `Plugins`."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

from reference_pages.markdown import page, table

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("harness", "hub_ext", "kernel_magics", "server_ext")
OBJECTS = {
    "detlab.commands": "a `click.Command`",
    "detlab.event_consumers": "a class that is an `EventConsumer`, made without arguments",
    "detlab.imports": "an `ImportKind`: how `det config import` recognises and converts a file of another tool",
    "detlab.runtime_flags": "a `RuntimeFlags`: what the runtime of that name adds to `det agent run`",
    "detlab.runtimes": "a function that makes one; [add a runtime](../contributing/add-a-runtime-or-backend.md)",
    "detlab.searchers": "a `SearchMethod` class; [add a search method](../contributing/search-methods.md)",
    "detlab.storages": "a `StorageType`, mostly the class itself; [add a storage](../contributing/add-a-storage.md)",
    "detlab.strategies": "a `Strategy` class; [add a training strategy](../contributing/add-a-strategy.md)",
}


def groups() -> dict[str, tuple[str, str]]:
    """What one of each group is called, and the module that loads it."""
    found = {}
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)) if "Plugins(" in text else ():
                match node:
                    case ast.Call(
                        func=ast.Name(id="Plugins"), args=[ast.Constant(str(group)), ast.Constant(str(what)), *_]
                    ):
                        found[group] = what, str(path.relative_to(ROOT))
    return dict(sorted(found.items()))


def plugins() -> str:
    """The page of plug-ins."""
    intro = """
Other packages add to detlab by entry points: a package names its object in a group of its `pyproject.toml`, and once it
is installed beside detlab, the object is found by that name. An object is imported when it is first used. No package
can take a name of detlab itself. One that is missing or cannot be imported is named in the error, with the reason and
what to install.

    [project.entry-points."detlab.commands"]
    hello = "my_package:hello"               # det hello
"""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["entry-points"]
    rows = [
        (
            f"`{group}`",
            f"{what}: {OBJECTS.get(group, 'see the module')}",
            ", ".join(f"`{name}`" for name in sorted(project.get(group, {}))),
            f"`{module}`",
        )
        for group, (what, module) in groups().items()
    ]
    return page("Plug-ins", intro, table(("group", "what an entry point names", "those of detlab", "loaded by"), rows))
