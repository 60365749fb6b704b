"""Wake-ups: a hint that the database has something new. They carry no data, so losing one costs only a delay."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Wakeups:
    """Events by key. Used in the event loop only."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Hashable, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def listen(self, key: Hashable) -> Iterator[asyncio.Event]:
        """Yield an event that every later `wake(key)` sets. Read the database after entering, then wait."""
        event = asyncio.Event()
        self._waiting[key].add(event)
        try:
            yield event
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]

    def has_waiters(self, key: Hashable) -> bool:
        """Whether anyone listens to `key`."""
        return key in self._waiting

    def wake(self, key: Hashable) -> None:
        """Wake everyone who listens to `key`."""
        for event in self._waiting.get(key, ()):
            event.set()

    def wake_kind(self, kind: str) -> None:
        """Wake everyone who listens to a key of this kind, `(kind, …)`."""
        for key in list(self._waiting):
            if isinstance(key, tuple) and key[0] == kind:
                self.wake(key)

    def wake_all(self) -> None:
        """Wake everyone (the services stop)."""
        for events in self._waiting.values():
            for event in events:
                event.set()


async def wait_until(event: asyncio.Event, timeout: float) -> bool:
    """Wait for an event; False if it did not come within `timeout` seconds."""
    try:
        await asyncio.wait_for(event.wait(), max(timeout, 0.0))
    except TimeoutError:
        return False
    return True
