"""From a cell to a submission: expand variables, check the configuration, pack the code."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import keyword
import pathlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import yaml

from detlab.client.bundling.bundle import Bundle, build_bundle
from detlab.client.bundling.capture import capture_imports
from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf import check, load_yaml
from detlab_magics.cells.expand import Expansion
from detlab_magics.cells.modules import CellModules
from detlab_magics.errors import MagicError


@dataclass(frozen=True)
class PreparedSubmission:
    """A submission that only needs to be sent."""

    config: dict[str, Any]
    bundle: Bundle
    source: dict[str, Any]
    places: Places | None = None
    warnings: list[Problem] = field(default_factory=list)
    forked_from: int | None = None
    """The experiment that it is a fork of."""
    code: str | None = None
    """Digest of that one's code, which runs instead of the bundle."""
    own_code: bool = True
    """Whether the bundle is what runs."""
    template: str | None = None
    """A template of the master that is laid under the configuration."""

    @property
    def key(self) -> str:
        """What makes two submissions the same: configuration and code."""
        text = json.dumps(self.config, sort_keys=True, default=str)
        text += "" if self.template is None else f" {self.template}"
        text += self.bundle.digest if self.own_code else f"{self.forked_from} {self.code}"
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
        MagicError: A variable is unknown, or the YAML is not a mapping.
        ConfigError: The YAML is malformed; the message gives line and column.
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
    template: str | None = None,
) -> PreparedSubmission:
    """Check the configuration and pack the code that its entrypoint needs.

    Args:
        config: The raw configuration.
        modules: The captured cells.
        name: Replaces `name`.
        slots: Replaces `resources.slots_per_trial`.
        context: Folder to ship; None: the cells and what they import.
        source: Provenance for people (notebook, cell, line maps).
        places: Where the configuration's keys are, for errors.
        template: A template of the master, which may have what the configuration lacks.

    Raises:
        ConfigError: The configuration has mistakes; all of them are listed.
        BundleError: The code is too large or cannot be read.
    """
    config = dict(config)
    if name is not None:
        config["name"] = name
    if slots is not None:
        config["resources"] = {**(config.get("resources") or {}), "slots_per_trial": slots}
    problems = check(config, complete=not template)
    if any(p.level == "error" for p in problems):
        error = ConfigError(problems)
        raise error if places is None else places.explain(error)
    words = _words(config.get("entrypoint"))
    local = local_sources(words, context or pathlib.Path.cwd(), modules)
    files = captured_files(words, modules, local.values())
    bundle = _pack(files, local, context)
    provenance = {k: v for k, v in modules.provenance().items() if k in files}
    return PreparedSubmission(
        config, bundle, {**(source or {}), "cells": provenance}, places, problems, template=template
    )


def local_sources(words: list[str], folder: pathlib.Path, modules: CellModules) -> dict[str, str]:
    """Return the local files that an entrypoint starts, and the Python files that those import: path -> text.

    Files that are not Python have an empty text.
    """
    scripts = [w for w in words if w.endswith((".py", ".sh")) and w not in modules.filenames and _inside(folder, w)]
    starts = {w: _read_source(folder / w) for w in scripts if w.endswith(".py")}
    named = [after for word, after in pairwise(words) if word == "-m" and _is_dotted(after)]
    named += [word.partition(":")[0] for word in words[:1] if ":" in word and _is_dotted(word.partition(":")[0])]
    starts["the entrypoint"] = "\n".join(f"import {module}" for module in named)
    found = capture_imports(starts, folder, provided=modules.cells)
    paths = sorted({*found.paths, *(str(pathlib.PurePosixPath(w)) for w in scripts)})
    return {path: _read_source(folder / path) if path.endswith(".py") else "" for path in paths}


def captured_files(words: list[str], modules: CellModules, local: Iterable[str]) -> dict[str, str]:
    """Return the captured cells that an entrypoint needs: path -> text.

    Those that it names or that its local files import, and those that these import in turn; all, if it starts
    nothing that is known here.
    """
    texts = list(local)
    wanted = [cell.name for cell in modules.cells.values() if any(_names(word, cell.name) for word in words)]
    wanted += [name for text in texts for name in _mentioned(text) if name in modules.cells]
    if not wanted and not texts:
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
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):  # a local file that is broken: the trial will say so
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.removesuffix(".py"))
    return found


def _pack(cells: Mapping[str, str], local: Mapping[str, str], context: pathlib.Path | None) -> Bundle:
    """Pack a whole folder, or just the cells, what the entrypoint starts here, and what they import here."""
    if context is not None:
        return build_bundle(context, files=cells)
    here = pathlib.Path.cwd()
    found = capture_imports(cells, here, provided=[name.removesuffix(".py") for name in cells])
    only = sorted({*found.paths, *local})
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


_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Places:
    """The lines of a YAML text.

    Args:
        text: The text, numbered from line 1.
        where: What it is called in errors: `cell 3` or a file's name.
    """

    def __init__(self, text: str, where: str) -> None:
        self._where = where
        try:
            self._root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError:
            self._root = None

    def line(self, path: str) -> int | None:
        """Return the line of the key at `path`, or of the nearest one above it that the text has."""
        node, line = self._root, None
        for index, key in _STEP.findall(path):
            if isinstance(node, yaml.SequenceNode) and index and int(index) < len(node.value):
                node = node.value[int(index)]
                line = node.start_mark.line + 1
                continue
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            found = next(((k, v) for k, v in pairs if k.value == key), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        return line

    def explain(self, error: ConfigError) -> ConfigError:
        """Return the error with the place of each mistake."""
        in_order = sorted(error.problems, key=lambda problem: self.line(problem.path) or 0)
        problems = [self._placed(problem) for problem in in_order]
        return ConfigError(problems, f"{self._where}: {error.headline}", hint=error.hint, code=error.code)

    def _placed(self, problem: Problem) -> Problem:
        line = self.line(problem.path)
        return problem if line is None else dataclasses.replace(problem, path=f"line {line}, {problem.path}")
