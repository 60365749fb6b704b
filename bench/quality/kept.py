"""Results that are kept: a line of JSON for each search, so that a run of hours may be interrupted and continued."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Key = tuple[str, str, int]
"""Task, method, seed."""


class Kept:
    """The searches of a part.

    Args:
        file: Where they are kept.
        again: Methods whose rows are dropped first.
    """

    def __init__(self, file: Path, again: Sequence[str] = ()) -> None:
        self._file = file
        self._rows: dict[Key, dict[str, Any]] = {}
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists():
            self._read(set(again))

    def _read(self, again: set[str]) -> None:
        lines = self._file.read_text().splitlines()
        for row in map(json.loads, lines):
            if row["method"] not in again:
                self._rows[row["task"], row["method"], row["seed"]] = row
        if len(self._rows) < len(lines):
            self._file.write_text("".join(json.dumps(row) + "\n" for row in self._rows.values()))

    def __contains__(self, key: Key) -> bool:
        return key in self._rows

    def add(self, key: Key, row: dict[str, Any]) -> None:
        """Keep a search."""
        self._rows[key] = dict(zip(("task", "method", "seed"), key, strict=True)) | row
        with self._file.open("a") as file:
            file.write(json.dumps(self._rows[key]) + "\n")

    def of(self, task: str, method: str) -> dict[int, dict[str, Any]]:
        """Return a method's searches of a task by their seeds."""
        return {seed: row for (t, m, seed), row in self._rows.items() if (t, m) == (task, method)}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows.values())
