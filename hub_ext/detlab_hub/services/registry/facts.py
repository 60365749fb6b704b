"""What queries ask for about models and versions, as (name, text, number) rows made of labels and metadata."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from detlab_hub.store.tables import clean_text

Fact: TypeAlias = tuple[str, str, float | None]
MOST_FACTS = 500
"""Of one model or version; what is beyond it is kept, and not found by queries."""
MOST_CHARS = 500
_DEPTH = 8


def facts_of(labels: list[str], metadata: Mapping[str, Any]) -> list[Fact]:
    """Return the facts of a model."""
    found = [("label", clean_text(label), None) for label in labels]
    return [*found, *_entries("", metadata, 0)][:MOST_FACTS]


def version_facts(metadata: Mapping[str, Any], hyperparameters: Mapping[str, Any]) -> list[Fact]:
    """Return the facts of a version: its metadata, and its hyperparameters as `hp.NAME`."""
    return [*_entries("hp.", hyperparameters, 0), *_entries("", metadata, 0)][:MOST_FACTS]


def _entries(prefix: str, values: Mapping[str, Any], depth: int) -> Iterator[Fact]:
    for key, value in values.items():
        name = f"{prefix}{clean_text(str(key))}"
        if len(name) > MOST_CHARS:
            continue
        if isinstance(value, dict):
            if depth < _DEPTH:
                yield from _entries(f"{name}.", value, depth + 1)
        elif isinstance(value, list):
            yield from (one for item in value[:MOST_FACTS] if (one := _entry(name, item)) is not None)
        elif (one := _entry(name, value)) is not None:
            yield one


def _entry(name: str, value: Any) -> Fact | None:
    match value:
        case bool():
            return name, "true" if value else "false", None
        case int() | float():
            number = _finite(value)
            return name, str(value)[:MOST_CHARS], number
        case str() if len(value) <= MOST_CHARS:
            return name, clean_text(value), None
        case _:
            return None


def _finite(value: float) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
