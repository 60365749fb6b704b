"""A pause of the garbage collector during a scheduling pass."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Rest:
    """Whether the collector is paused: all threads share it, so the first stops it and the last starts it again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._was_on = False

    def begin(self) -> None:
        with self._lock:
            if self._depth == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._depth += 1

    def end(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0 and self._was_on:
                gc.enable()


_rest = _Rest()


@contextmanager
def without_collection() -> Iterator[None]:
    """Pause the collector during a pass: it makes tens of thousands of small objects, and no cycles worth a search.

    Several of them may be under way, within each other and in several threads: the last of them to end starts the
    collector again, if it was on when the first began.
    """
    _rest.begin()
    try:
        yield
    finally:
        _rest.end()
