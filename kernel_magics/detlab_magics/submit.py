"""From a cell to a submission: expand variables, judge the configuration, pack the code."""

from __future__ import annotations

import ast
import hashlib
import json
import keyword
import pathlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from detlab.client.bundle import Bundle, build_bundle
from detlab.client.capture import capture_imports
from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf import check, load_yaml
from detlab_magics.errors import MagicError
from detlab_magics.expand import Expansion
from detlab_magics.modules import CellModules
from detlab_magics.places import Places


@dataclass(frozen=True)
class Prepared:
    """A submission that only needs to be sent."""

    config: dict[str, Any]
    bundle: Bundle
    source: dict[str, Any]
    places: Places | None = None
    warnings: list[Problem] = field(default_factory=list)

    @property
    def key(self) -> str:
        """What makes two submissions the same: configuration and code."""
        text = json.dumps(self.config, sort_keys=True, default=str) + self.bundle.digest
        return hashlib.sha256(text.encode()).hexdigest()


def read_config(
    text: str, namespace: Mapping[str, Any], where: str, first_line: int = 2
) -> tuple[dict[str, Any], Places]:
    """Parse a cell's YAML body with the notebook's variables in place.

    Args:
        text: The body.
        namespace: The notebook's variables.
        where: What to call the source in errors: `cell 3`.
        first_line: The number of the body's first line, in errors.

    Returns:
        The configuration, and where in the text its keys are.

    Raises:
        MagicError: Unknown variables, or YAML that is not a mapping.
        ConfigError: Malformed YAML, with line and column.
    """
    expansion = Expansion(namespace, where=where, first_line=first_line)
    masked = "\n" * (first_line - 1) + expansion.mask(text)
    places = Places(masked, where)
    raw, problems = load_yaml(masked, where)
    if any(p.level == "error" for p in problems):
        raise places.explain(ConfigError(problems, "the body is not a configuration"))
    config = expansion.unmask(raw)
    if not isinstance(config, dict):
        raise MagicError(
            f"{where} has no experiment configuration: the body must be YAML, key: value",
            hint="%%det_experiment? shows an example",
        )
    return config, places


def prepare(
    config: dict[str, Any],
    modules: CellModules,
    *,
    name: str | None = None,
    slots: int | None = None,
    context: pathlib.Path | None = None,
    source: Mapping[str, Any] | None = None,
    places: Places | None = None,
) -> Prepared:
    """Judge the configuration and pack the code that its entrypoint needs.

    Args:
        config: The raw configuration.
        modules: The captured cells.
        name: Replaces `name`.
        slots: Replaces `resources.slots_per_trial`.
        context: Folder to ship; None: the cells and what they import.
        source: Provenance.
        places: Where the configuration's keys are, for errors.

    Raises:
        ConfigError: Every mistake of the configuration at once.
        BundleError: The code is too large or cannot be read.
    """
    config = dict(config)
    if name is not None:
        config["name"] = name
    if slots is not None:
        config["resources"] = {**(config.get("resources") or {}), "slots_per_trial": slots}
    problems = check(config, complete=True)
    if any(p.level == "error" for p in problems):
        error = ConfigError(problems)
        raise error if places is None else places.explain(error)
    files = captured_files(config.get("entrypoint"), modules)
    bundle = _pack(config.get("entrypoint"), files, context)
    provenance = {k: v for k, v in modules.provenance().items() if k in files}
    return Prepared(config, bundle, {**(source or {}), "cells": provenance}, places, problems)


def captured_files(entrypoint: Any, modules: CellModules) -> dict[str, str]:
    """Return the captured cells that an entrypoint needs: those it names and those they import, else all."""
    words = _words(entrypoint)
    wanted = [cell.name for cell in modules.cells.values() if any(_names(word, cell.name) for word in words)]
    if not wanted:
        wanted = list(modules.cells)
    needed: dict[str, str] = {}
    while wanted:
        cell = modules.cells[wanted.pop()]
        if cell.filename not in needed:
            needed[cell.filename] = cell.source
            wanted += [name for name in _mentioned(cell.source) if name in modules.cells]
    return needed


def _mentioned(source: str) -> set[str]:
    """Return the modules that a source imports, and those it names in a text (importlib, a worker's command)."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.removesuffix(".py"))
    return found


def _pack(entrypoint: Any, cells: Mapping[str, str], context: pathlib.Path | None) -> Bundle:
    """Pack a whole folder, or just the cells, the script that the entrypoint names, and what they import here."""
    if context is not None:
        return build_bundle(context, files=cells)
    here = pathlib.Path.cwd()
    words = _words(entrypoint)
    scripts = [w for w in words if w.endswith((".py", ".sh")) and w not in cells and _inside(here, w)]
    sources = {**cells, **{w: _read_source(here / w) for w in scripts if w.endswith(".py")}}
    modules = [after for word, after in pairwise(words) if word == "-m" and _is_dotted(after)]
    modules += [word.partition(":")[0] for word in words[:1] if ":" in word and _is_dotted(word.partition(":")[0])]
    if modules:
        sources["the entrypoint"] = "\n".join(f"import {module}" for module in modules)
    found = capture_imports(sources, here, provided=[name.removesuffix(".py") for name in cells])
    only = sorted({*found.paths, *(str(pathlib.PurePosixPath(w)) for w in scripts)})
    return build_bundle(here, files=cells, only=only) if only else build_bundle(files=cells)


def _read_source(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise MagicError(f"the entrypoint's script {path} cannot be read: {problem}") from problem


def _is_dotted(word: str) -> bool:
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in word.split("."))


def _words(entrypoint: Any) -> list[str]:
    if not isinstance(entrypoint, str):
        return [str(word) for word in entrypoint or []]
    try:
        return shlex.split(entrypoint)
    except ValueError:
        return entrypoint.split()


def _names(word: str, module: str) -> bool:
    return (
        word == module or word.split(":", maxsplit=1)[0] == module or pathlib.PurePosixPath(word).name == f"{module}.py"
    )


def _inside(folder: pathlib.Path, word: str) -> bool:
    path = (folder / word).resolve()
    return path.is_file() and path.is_relative_to(folder.resolve())
