"""The lines of a spawn page: kept for later readers, new ones sent to all waiting ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

KEPT = 200


class News:
    """The progress of one start; a repeated line is left out."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, str]] = []
        self._dropped = 0
        self._more = asyncio.Event()
        self._closed = False

    def begin(self) -> None:
        """Forget the lines of an earlier start; present readers get the new ones."""
        self._dropped += len(self._lines)
        self._lines, self._closed = [], False

    def close(self) -> None:
        """End all readers once they have read everything."""
        self._closed = True
        self._wake()

    def say(self, percent: int, text: str) -> None:
        """Add a line. The percentage never decreases: a second attempt begins where the first one was."""
        if self._lines:
            last, said = self._lines[-1]
            percent = max(percent, last)
            if text == said:
                return
        self._lines.append((percent, text))
        if len(self._lines) > KEPT:
            del self._lines[0]
            self._dropped += 1
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    @property
    def last(self) -> str:
        """The newest line."""
        return self._lines[-1][1] if self._lines else ""

    async def lines(self) -> AsyncIterator[tuple[int, str]]:
        """Yield all lines, then new ones as they come, until it is closed."""
        told = 0
        while True:
            more = self._more
            while told < self._dropped + len(self._lines):
                told = max(told, self._dropped)
                line = self._lines[told - self._dropped]
                told += 1
                yield line
            if self._closed:
                return
            await more.wait()
