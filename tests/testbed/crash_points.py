"""Where a master can die: at each commit of its database, before it or after it.

A `Tripwire` counts the commits that the store's writer asks of the database's driver: a migration, the lease, every
write of the services. At the chosen one it ends the process, or whatever stands for it, and no commit happens any more.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from detlab_hub.store import store

ALL = os.environ.get("DETLAB_ALL_CRASH_POINTS") == "1"
"""Whether every point is tried where `make test` tries some (`make soak`)."""


@dataclass(frozen=True)
class CrashPoint:
    """Die at commit number `at` (from 1; 0: never), before it or after it."""

    at: int
    after: bool = False

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'} commit {self.at}"


CALM = CrashPoint(0)


class Tripwire:
    """Counts commits; at `point` it calls `die`, which does not return, and no commit happens any more.

    Each commit calls `note` first."""

    def __init__(self, point: CrashPoint, die: Callable[[], None], note: Callable[[], None] = lambda: None) -> None:
        self.point = point
        self.count = 0
        self.dead = False
        self._die = die
        self._note = note

    def commit(self, really: Callable[[], None]) -> None:
        """Commit, unless the process dies or has died."""
        if self.dead:
            self._die()
        self.count += 1
        self._note()
        if self.count != self.point.at:
            really()
            return
        self.dead = True
        if self.point.after:
            really()
        self._die()

    def watch(self, engine: Engine) -> Engine:
        """Make all commits through this engine pass by here."""
        dialect: Any = engine.dialect
        plain = type(dialect)  # its own methods, not those that were put before them for another wire
        dialect.do_commit = lambda connection: self.commit(lambda: plain.do_commit(dialect, connection))
        return engine


@contextmanager
def watching(wire: Tripwire) -> Iterator[None]:
    """Let the stores that are opened meanwhile have their commits watched."""
    make = store.writer_engine
    store.writer_engine = lambda url: wire.watch(make(url))
    try:
        yield
    finally:
        store.writer_engine = make


@contextmanager
def engines_kept() -> Iterator[None]:
    """Give stores of the same address the same engines: a store that is closed leaves no connection in them.

    What a process compiles once would else be compiled anew for every start of a master in a test.
    """
    made = store.writer_engine, store.reader_engine
    store.writer_engine, store.reader_engine = (functools.cache(make) for make in made)
    try:
        yield
    finally:
        store.writer_engine, store.reader_engine = made
