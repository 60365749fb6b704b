"""Which tables the masters of a seed write: what was looked at, and was not written since, is as it was.

Each connection that may write has triggers of its own for that, which are in no database. They count also what is taken
back in the end: a table is looked at once too often then, never too seldom.
"""

from __future__ import annotations

import contextlib
import sqlite3

_NAME = {"events": "CASE {row}.kind WHEN 'metrics' THEN 'events of metrics' ELSE 'events' END"}
"""table -> under which name a row of it counts, if not under the table's own"""
_TABLES = (
    *("agents", "allocation_parts", "allocations", "checkpoints", "events", "experiments", "idempotency"),
    *("metric_names", "points", "quotas", "searcher_journal", "series", "tasks", "trials"),
)
"""Those that are asked about one by one. Of the others it is known only whether any of them was written."""


class Written:
    """How often each table was written, and what was looked at then."""

    def __init__(self) -> None:
        self._times = dict.fromkeys((*_TABLES, "events of metrics"), 0)
        self._connections: list[tuple[sqlite3.Connection, int]] = []
        """Those that may write, each with how many rows it had written when that was asked last."""
        self._looked: dict[str, tuple[int, ...]] = {}
        """What -> how often its tables had been written"""

    def watch(self, connection: sqlite3.Connection) -> None:
        """Count what this connection writes from now on."""
        connection.create_function("written", 1, self._note)
        for name in _TABLES:
            for what, row in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                said = _NAME.get(name, f"'{name}'").format(row=row)
                connection.execute(
                    f"CREATE TEMP TRIGGER written_{name}_{what} AFTER {what} ON main.{name} "
                    f"BEGIN SELECT written({said}); END"
                )
        self._connections.append((connection, connection.total_changes))

    def is_known(self, what: str, *tables: str, of: tuple[int, ...] = ()) -> bool:
        """Whether nobody has written these tables since this was asked last, and the numbers `of` it are the same."""
        now = (*of, *(self._times[table] for table in tables))
        before, self._looked[what] = self._looked.get(what), now
        return now == before

    def nothing(self) -> bool:
        """Whether no table was written since this was asked last."""
        same, open_ones = True, []
        for connection, before in self._connections:
            with contextlib.suppress(sqlite3.ProgrammingError):  # it was closed: it writes no more
                open_ones.append((connection, connection.total_changes))
                same = same and open_ones[-1][1] == before
        self._connections = open_ones
        return same

    def forget(self) -> None:
        """Nothing is known any more."""
        self._looked.clear()

    def _note(self, name: str) -> None:
        self._times[name] += 1
