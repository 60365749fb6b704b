"""Folders that code puts on `sys.path` and that do not travel with it: `sys.path.append("../src")`."""

from __future__ import annotations

import ast
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from detlab.schemas.wire import ProblemView


def search_path_warnings(sources: Iterable[str], folder: Path, context: Path | None) -> list[ProblemView]:
    """Return a warning for each folder that a notebook's code puts on `sys.path` and that is not uploaded.

    Args:
        sources: Python texts.
        folder: The notebook's, from which it is usually started.
        context: The folder that is uploaded whole; None: only modules beside the notebook are.
    """
    found: dict[str, ProblemView] = {}
    for named in (name for text in sources for name in _added(text)):
        path = (folder / Path(named).expanduser()).resolve()
        whole = context is not None and path.is_relative_to(context.resolve())
        if whole or path == folder.resolve() or not path.is_dir():  # what is not here may be where it runs
            continue
        message = f"{named!r} is put on sys.path and is not uploaded: imports from it will fail"
        hint = "--context FOLDER uploads a folder whole, and becomes the working directory; or install it where it runs"
        found[named] = ProblemView(path="", message=message, hint=hint, level="warning")
    return list(found.values())


def _added(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr="append" | "insert" | "extend")) if _is_path(value):
                yield from _texts(node.args)
            case ast.Call(func=ast.Attribute(attr="addsitedir") | ast.Name(id="addsitedir")):
                yield from _texts(node.args)
            case ast.AugAssign(target=target, value=value) if _is_path(target):
                yield from _texts([value])
            case ast.Assign(targets=[target], value=value) if _is_path(target):
                yield from _texts([value])
            case _:
                pass


def _is_path(node: ast.expr) -> bool:
    return ast.unparse(node) in {"sys.path", "sys.path[:0]", "sys.path[0:0]"}


def _texts(nodes: Iterable[ast.expr]) -> Iterator[str]:
    """Yield the paths that expressions name: texts, alone or in lists, and what `os.path.join("..", "src")` gives."""
    for node in nodes:
        if isinstance(node, ast.List | ast.Tuple):
            yield from _texts(node.elts)
            continue
        parts = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant)]
        texts = [part for part in parts if isinstance(part, str) and part]
        if texts:
            yield str(Path(*texts))


def own_folders() -> list[Path]:
    """Return the folders of `sys.path` that somebody put there, in its order: none with installed packages."""
    installed = [Path(prefix).resolve() for prefix in (sys.prefix, sys.base_prefix, site.getuserbase())]
    linked = set(_linked())
    found = dict.fromkeys(Path(entry).resolve() for entry in sys.path if Path(entry).is_dir())
    return [
        folder
        for folder in found
        if folder not in linked and not any(folder.is_relative_to(prefix) for prefix in installed)
    ]


def _linked() -> Iterator[Path]:
    """Yield the folders of packages that are installed in place (`pip install -e`)."""
    for packages in (entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))):
        for file in Path(packages).glob("*.pth"):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                if line and not line.startswith(("#", "import ")):
                    yield (Path(packages) / line.strip()).resolve()
