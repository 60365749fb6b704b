"""Which tables the masters of a seed write: what was looked at, and was not written since, is as it was.

Each connection that may write has triggers of its own for that, which are in no database. They count also what is taken
back in the end: a table is looked at once too often then, never too seldom.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

_NAME = {"events": "CASE {row}.kind WHEN 'metrics' THEN 'events of metrics' ELSE 'events' END"}
"""table -> under which name a row of it counts, if not under the table's own"""


class Written:
    """How often each table was written, and what was looked at then."""

    def __init__(self) -> None:
        self._times = Counter[str]()
        self._looked: dict[str, tuple[int, ...]] = {}
        """What -> how often its tables had been written"""
        self._all = 0

    def watch(self, connection: sqlite3.Connection) -> None:
        """Count what this connection writes from now on."""
        connection.create_function("written", 1, self._note)
        found = connection.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'table'").fetchall()
        virtual = tuple(f"{name}_" for name, sql in found if sql and sql.startswith("CREATE VIRTUAL"))
        for name, sql in found:
            if not sql or name.startswith("sqlite_") or f"{name}_".startswith(virtual or ("sqlite_",)):
                continue
            for what, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                said = _NAME.get(name, f"'{name}'").format(row=row)
                connection.execute(
                    f"CREATE TEMP TRIGGER written_{name}_{what} AFTER {what} ON main.{name} "
                    f"BEGIN SELECT written({said}); END"
                )

    def is_known(self, what: str, *tables: str, of: tuple[int, ...] = ()) -> bool:
        """Whether nobody has written these tables since this was asked last, and the numbers `of` it are the same."""
        now = (*of, *(self._times[table] for table in tables))
        before, self._looked[what] = self._looked.get(what), now
        return now == before

    def nothing(self) -> bool:
        """Whether no table was written since this was asked last."""
        before, self._all = self._all, self._times.total()
        return before == self._all

    def forget(self) -> None:
        """Nothing is known any more."""
        self._looked.clear()

    def _note(self, name: str) -> None:
        self._times[name] += 1
