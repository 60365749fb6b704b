"""How mappings and texts differ. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from detlab.schemas.wire.registry import Difference

MOST_ROWS = 2000
"""Rows of each table of a comparison."""
DIFF_CHARS = 20_000
"""Of one file."""
DIFFED_LINES = 3000
"""Lines of a file that is compared line by line: the time grows with their square, and faster."""
_EMPTY: tuple[Any, ...] = (None, {}, [], "")
"""What says nothing in a config: written or left out, it is the same."""
_DEPTH = 20


def unified(texts: Sequence[str], names: Sequence[str]) -> str:
    """Return the unified difference of two texts; empty if one has too many lines."""
    before, after = (text.splitlines(keepends=True) for text in texts)
    if max(len(before), len(after)) > DIFFED_LINES:
        return ""
    lines = difflib.unified_diff(before, after, names[0], names[1])
    text = "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
    return text if len(text) <= DIFF_CHARS else f"{text[:DIFF_CHARS]}\n… (longer than is shown)\n"


def differences(values: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Return a row for each name that any of the mappings has, by name; a value that is empty is none."""
    names = sorted({name for mapping in values for name in mapping})
    rows = []
    for name in names[:MOST_ROWS]:
        found = [mapping.get(name) for mapping in values]
        same = all(one == found[0] or (one in _EMPTY and found[0] in _EMPTY) for one in found)
        rows.append(Difference(name=name, values=found, same=same))
    return rows


def flat(values: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Return nested mappings as one, by dotted path."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < _DEPTH:
            found.update(flat(value, f"{name}.", depth + 1))
        else:
            found[name] = value
    return found
