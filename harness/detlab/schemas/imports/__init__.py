"""Configs of other tools as detlab's, each by a plug-in in a package of its own: a Katib `Experiment`, a W&B sweep.

    raw, problems = load_import(text)    # as the tool itself reads it
    imported = import_config(raw)
    imported.config                      # a raw experiment config
    imported.notes                       # every leaf of the file: kept, changed or left out, and what was added

Nothing is lost silently: a leaf that no rule names is left out by name. Pure; no client, no file, no search method
lives here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from detlab.errors import ConfigError, Problem
from detlab.plugins import Plugins
from detlab.schemas.expconf import check, errors_of, load_yaml
from detlab.schemas.expconf.raw import structure
from detlab.schemas.imports.ledger import FileLeaf, Imported, ImportKind, ImportNote, Ledger, Outcome, leaves

__all__ = [
    "KINDS",
    "FileLeaf",
    "ImportKind",
    "ImportNote",
    "Imported",
    "Ledger",
    "Outcome",
    "import_config",
    "kind_of",
    "kinds",
    "leaves",
    "load_import",
]


KINDS: Plugins[ImportKind] = Plugins(
    "detlab.imports",
    "kind of file to import",
    {
        "katib": "detlab.schemas.imports.katib.search:IMPORT",
        "wandb": "detlab.schemas.imports.wandb.sweep:IMPORT",
    },
)
"""What can be imported, by a short name."""


def kinds() -> dict[str, ImportKind]:
    """Return what can be imported, by name: first what detlab has, so that no package changes what its kinds become."""
    names = sorted(KINDS.names(), key=lambda name: (name not in KINDS.built_in, name))
    return {name: KINDS.load(name) for name in names}


def load_import(text: str, source_name: str = "file") -> tuple[Any, list[Problem]]:
    """Read a file of another tool as that tool reads it: W&B speaks YAML 1.1.

    Args:
        text: The file's text.
        source_name: How messages about the whole text call it.

    Returns:
        The parsed file and the mistakes of the text itself, as `load_yaml` returns them.
    """
    raw, problems = load_yaml(text, source_name)
    name = _recognised(raw)
    if name is not None and KINDS.load(name).older_yaml:
        return load_yaml(text, source_name, older=True)
    return raw, problems


def kind_of(raw: object) -> str:
    """Return which of `KINDS` a parsed file is.

    Raises:
        ConfigError: It is none of them; the message says what it looks like.
    """
    name = _recognised(raw)
    if name is None:
        raise ConfigError([_unknown(raw)])
    return name


def _recognised(raw: object) -> str | None:
    if not isinstance(raw, dict):
        return None
    return next((name for name, kind in kinds().items() if kind.recognises(raw)), None)


def _unknown(raw: object) -> Problem:
    there = kinds().values()
    known = "; ".join(f"a {kind.title} has {kind.marks}" for kind in there)
    if not isinstance(raw, dict):
        return Problem("", "is not a mapping, so it is no file that can be imported", known)
    if isinstance(raw.get("searcher"), dict) or "entrypoint" in raw:
        return Problem("", "is an experiment config of detlab or Determined already", "use `det config check`")
    for kind in there:
        if (problem := kind.nearly(raw)) is not None:
            return replace(problem, hint=problem.hint or known)
    if raw.get("kind") is not None:
        return Problem("kind", f"is {raw['kind']!r}, which cannot be imported", known)
    return Problem("", f"is neither a {' nor a '.join(kind.title for kind in there)}", known)


def import_config(raw: object) -> Imported:
    """Convert a parsed file of another tool.

    Returns:
        The config with a note for each leaf of the file. What detlab's own check says about the config is in
        `problems`.

    Raises:
        ConfigError: The file is of no known kind, or has mistakes; all of them are named.
    """
    found, safe = structure.inspect(raw)
    if found and not (safe and isinstance(raw, dict)):
        raise ConfigError(found)
    name = kind_of(raw)
    assert isinstance(raw, dict)
    kind = KINDS.load(name)
    ledger = kind.ledger(raw)
    config = kind.convert(ledger)
    if ledger.problems:
        raise ConfigError(ledger.problems)
    problems = check(config)
    if errors_of(problems):
        raise ConfigError([*(Problem(p.path, f"in the result: {p.message}", p.hint) for p in errors_of(problems))])
    return Imported(name, kind.title, config, ledger.all_notes(), tuple(ledger.to_do), tuple(problems))
