"""Configs of other tools as detlab's: a Katib `Experiment`, a W&B sweep.

    raw, problems = load_import(text)    # as the tool itself reads it
    imported = import_config(raw)
    imported.config                      # a raw experiment config
    imported.notes                       # every leaf of the file: kept, changed or left out, and what was added

Nothing is lost silently: a leaf that no rule names is left out by name. Pure; no client, no file, no search method
lives here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from detlab.errors import ConfigError, Problem
from detlab.schemas.expconf import check, errors_of, load_yaml
from detlab.schemas.expconf.raw import structure
from detlab.schemas.imports import katib, wandb
from detlab.schemas.imports.ledger import FileLeaf, Imported, ImportNote, Ledger, Outcome, leaves

__all__ = [
    "KINDS",
    "FileLeaf",
    "ImportKind",
    "ImportNote",
    "Imported",
    "Outcome",
    "import_config",
    "kind_of",
    "leaves",
    "load_import",
]


@dataclass(frozen=True)
class ImportKind:
    """A kind of file that can be imported.

    Attributes:
        title: What it is called in messages.
        marks: How it is recognised, for messages.
        recognises: Whether a parsed file is of this kind.
        convert: Makes a config of a ledger's file, and notes each leaf.
    """

    title: str
    marks: str
    recognises: Callable[[dict[str, Any]], bool]
    convert: Callable[[Ledger], dict[str, Any]]
    ledger: Callable[[dict[str, Any]], Ledger]


KINDS: dict[str, ImportKind] = {
    "katib": ImportKind(
        "Katib Experiment",
        f"`apiVersion: {katib.API_VERSION}` and `kind: Experiment`",
        katib.recognises,
        katib.convert,
        katib.ledger,
    ),
    "wandb": ImportKind("W&B sweep", "`method` and `parameters`", wandb.recognises, wandb.convert, wandb.ledger),
}
"""What can be imported, by a short name."""


def load_import(text: str, source_name: str = "file") -> tuple[Any, list[Problem]]:
    """Read a file of another tool as that tool reads it: W&B speaks YAML 1.1.

    Args:
        text: The file's text.
        source_name: How messages about the whole text call it.

    Returns:
        The parsed file and the mistakes of the text itself, as `load_yaml` returns them.
    """
    raw, problems = load_yaml(text, source_name)
    if isinstance(raw, dict) and wandb.recognises(raw):
        return load_yaml(text, source_name, older=True)
    return raw, problems


def kind_of(raw: object) -> str:
    """Return which of `KINDS` a parsed file is.

    Raises:
        ConfigError: It is none of them; the message says what it looks like.
    """
    if isinstance(raw, dict):
        for name, kind in KINDS.items():
            if kind.recognises(raw):
                return name
    raise ConfigError([_unknown(raw)])


_SPACE = "give `method` and `parameters` instead, or write hyperparameters and searcher by hand"


def _unknown(raw: object) -> Problem:
    known = "; ".join(f"a {kind.title} has {kind.marks}" for kind in KINDS.values())
    if not isinstance(raw, dict):
        return Problem("", "is not a mapping, so it is no file that can be imported", known)
    if isinstance(raw.get("searcher"), dict) or "entrypoint" in raw:
        return Problem("", "is an experiment config of detlab or Determined already", "use `det config check`")
    if str(raw.get("apiVersion", "")).startswith("kubeflow.org/") and raw.get("kind") == "Experiment":
        return Problem("apiVersion", f"is {raw['apiVersion']}; only {katib.API_VERSION} can be imported", known)
    if isinstance(raw.get("tune"), dict):
        return Problem("tune", "is a search of Ray Tune in a W&B sweep: Ray draws its points", _SPACE)
    if isinstance(raw.get("scheduler"), dict) and "method" not in raw:
        return Problem("scheduler", "is a W&B sweep whose points a scheduler of its own draws", _SPACE)
    if raw.get("kind") is not None:
        return Problem("kind", f"is {raw['kind']!r}, which cannot be imported", known)
    return Problem("", "is neither a Katib Experiment nor a W&B sweep", known)


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
    kind = KINDS[name]
    ledger = kind.ledger(raw)
    config = kind.convert(ledger)
    if ledger.problems:
        raise ConfigError(ledger.problems)
    problems = check(config)
    if errors_of(problems):
        raise ConfigError([*(Problem(p.path, f"in the result: {p.message}", p.hint) for p in errors_of(problems))])
    return Imported(name, kind.title, config, ledger.all_notes(), tuple(ledger.to_do), tuple(problems))
