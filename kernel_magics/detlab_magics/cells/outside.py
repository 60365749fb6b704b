"""Modules that the notebook finds by `sys.path` where no code is uploaded from: `sys.path.append("../src")`."""

from __future__ import annotations

import ast
import io
import pathlib
import sys
import tarfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder

from detlab.client.bundling.bundle import Bundle
from detlab.client.bundling.search_path import own_folders
from detlab.schemas.wire import ProblemView
from detlab_magics.cells.modules import ModuleFolder

_LARGEST = 1_000_000
"""Bytes of a Python file that is looked into."""


def outside_warnings(bundle: Bundle, context: pathlib.Path | None) -> list[ProblemView]:
    """Return a warning for each module that the uploaded code imports and that lies where nothing is uploaded from.

    Args:
        bundle: The code.
        context: The folder that was uploaded whole; None: modules of the working directory were.
    """
    here = (context or pathlib.Path.cwd()).resolve()
    cells = {pathlib.Path(folder).resolve() for folder in ModuleFolder.made}
    own = set(own_folders()) - cells - ({pathlib.Path.cwd()} if "" in sys.path else set())
    folders = {folder for folder in own if context is None or not folder.is_relative_to(here)} - {here}
    if not folders:
        return []
    uploaded = {file.path.partition("/")[0].removesuffix(".py") for file in bundle.files}
    wanted = {name for text in _sources(bundle) for name in _imported(text)}
    found = []
    for name in sorted(wanted - uploaded - sys.stdlib_module_names):
        spec = PathFinder.find_spec(name, sys.path)
        folder = _folder_of(spec) if spec is not None else None
        if folder in folders:
            message = f"{name} is imported from {folder}, which is not uploaded: the import will fail"
            hint = "--context FOLDER uploads a folder whole; or install it where trials run"
            found.append(ProblemView(path="", message=message, hint=hint, level="warning"))
    return found


def _sources(bundle: Bundle) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(bundle.data)) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".py") and member.size <= _LARGEST else None
            if file is not None:
                yield file.read().decode(errors="replace")


def _imported(text: str) -> Iterator[str]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _folder_of(spec: ModuleSpec) -> pathlib.Path | None:
    """Return the entry of `sys.path` by which a top-level module was found."""
    if spec.submodule_search_locations:
        return pathlib.Path(next(iter(spec.submodule_search_locations))).resolve().parent
    return pathlib.Path(spec.origin).resolve().parent if spec.origin else None
