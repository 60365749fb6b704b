"""A cell for a task of its own, with the values that go in and the modules it imports, as one bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from detlab.client.bundling.bundle import Bundle, build_bundle
from detlab.client.bundling.capture import capture_imports
from detlab.errors import BundleError, BundleTooLarge
from detlab.run.cell import FOLDER, SUFFIX
from detlab.run.values import EncodedVariable

OWN = ("detlab",)
"""What tasks have already, wherever it lies here."""


def pack_cell(
    text: str,
    name: str,
    values: Mapping[str, EncodedVariable],
    outs: Sequence[str],
    *,
    files: Mapping[str, str] | None = None,
    hidden: Sequence[str] = (),
    folders: Sequence[Path] = (),
    context: Path | None = None,
    too_large: str = "",
    function: str = "",
) -> Bundle:
    """Pack a cell as `detlab.run.cell` unpacks it.

    Args:
        text: Python; line n of the task's tracebacks is line n of it.
        name: What tracebacks call it.
        values: The variables that go in.
        outs: Names of variables that come back.
        files: Modules that are not on disk, by file name.
        hidden: Names of modules that no file stands for.
        folders: Where modules are looked for; none: the working directory.
        context: Folder to ship whole, instead of what the cell imports.
        function: What is called in a trial (`detlab.run.function`), instead of running the cell alone.
        too_large: What to say of values that make it too large, with `{largest}` for the largest of them.

    Raises:
        BundleError: The code and the values are too large, or something cannot be read.
    """
    places = {variable: f"{number}{SUFFIX}" for number, variable in enumerate(values)}
    given: dict[str, bytes | str] = {**(files or {}), f"{FOLDER}/cell.py": text}
    given |= {f"{FOLDER}/{places[variable]}": value.data for variable, value in values.items()}
    request = {"name": name, "in": places, "out": list(outs), **({"function": function} if function else {})}
    given[f"{FOLDER}/cell.json"] = json.dumps(request)
    # The process that unpickles needs the modules, whether or not the cell names them.
    needed = sorted({module for value in values.values() for module in value.modules})
    sources = {**(files or {}), name: text, "the variables": "\n".join(f"import {module}" for module in needed)}
    try:
        return _bundle(given, sources, folders or [Path.cwd()], hidden, context)
    except BundleTooLarge as problem:
        sizes = sorted(((len(value.data), variable) for variable, value in values.items()), reverse=True)
        if too_large and sizes and sizes[0][0] > 1_000_000:
            largest = ", ".join(f"{variable} ({size / 2**20:.1f} MB)" for size, variable in sizes[:3])
            problem.hint = too_large.format(largest=largest)
        raise


def _bundle(
    given: Mapping[str, bytes | str],
    sources: Mapping[str, str],
    folders: Sequence[Path],
    hidden: Sequence[str],
    context: Path | None,
) -> Bundle:
    if context is not None:
        return build_bundle(context, files=given)
    local = local_modules(sources, folders, hidden)
    first = [path for path, folder in local.items() if folder == folders[0]]
    others = {path: read_inside(folder, path) for path, folder in local.items() if folder != folders[0]}
    files = {**others, **given}
    return build_bundle(folders[0], files=files, only=first) if first else build_bundle(files=files)


def local_modules(sources: Mapping[str, str], folders: Sequence[Path], hidden: Sequence[str] = ()) -> dict[str, Path]:
    """Return the files of the modules that sources import, directly and through one another, each with its folder.

    Args:
        sources: Python texts by name.
        folders: Where modules are looked for, in this order.
        hidden: Names of modules that come from elsewhere.

    Raises:
        BundleError: A file cannot be read.
    """
    found: dict[str, Path] = {}
    pending = dict(sources)
    while pending:
        fresh: dict[str, Path] = {}
        for folder in folders:
            earlier = {_top(path) for path, place in (found | fresh).items() if place != folder}
            paths = capture_imports(pending, folder, provided=[*hidden, *earlier]).paths
            fresh |= {path: folder for path in paths if path not in found}
        found |= fresh
        modules = {path: folder for path, folder in fresh.items() if path.endswith(".py")}
        pending = {path: read_inside(folder, path).decode(errors="replace") for path, folder in modules.items()}
    return found


def _top(path: str) -> str:
    return path.partition("/")[0].removesuffix(".py")


def read_inside(folder: Path, path: str) -> bytes:
    """Return the content of a file below a folder.

    Raises:
        BundleError: It cannot be read, or is a link that leads out of the folder.
    """
    file = folder / path
    if not file.resolve().is_relative_to(folder.resolve()):
        raise BundleError(f"{file} lies outside of {folder}")
    try:
        return file.read_bytes()
    except OSError as error:
        raise BundleError(f"{file} cannot be read: {error.strerror or error}") from error
