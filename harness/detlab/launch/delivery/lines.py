r"""Output bytes to log lines: pure, so that every way to cut a stream can be tested.

A line ends with `\n`. A carriage return starts the line again, as a progress bar does: of such updates the last one
before a `\n` counts, and in between one a second is passed on, as soon as its return is there. Nothing that ends with
`\n` is ever dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINE = 16_000
"""Bytes of a log line; longer ones are cut into several."""
PROGRESS_INTERVAL = 1.0
"""Seconds between two updates of a progress bar that are passed on."""

_RANK = re.compile(r"^\[rank=(\d{1,9})\] ?")
_LEVEL = re.compile(r"(?:^|[\s\[|:])(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?=[\]:\s|]|$)")
_LEVEL_NAMES = {"WARN": "WARNING", "FATAL": "CRITICAL"}


@dataclass(frozen=True)
class OutputLine:
    """A line of output: which rank said it, how grave it calls itself, and its text without either newline."""

    text: str
    rank: int | None = None
    level: str | None = None


def parse_line(raw: bytes) -> OutputLine:
    """Decode one line: `[rank=N] ` becomes the rank, a level word near the start the level.

    Invalid UTF-8 and NUL (which PostgreSQL cannot store) become U+FFFD.
    """
    text = raw.decode("utf-8", errors="replace").replace("\0", "\ufffd")
    rank = None
    match = _RANK.match(text)
    if match:
        rank = int(match.group(1))
        text = text[match.end() :]
    found = _LEVEL.search(text, 0, 80)
    level = _LEVEL_NAMES.get(found.group(1), found.group(1)) if found else None
    return OutputLine(text, rank, level)


class LineSplitter:
    """Cut the bytes of one pipe into lines.

    Args:
        max_line: Bytes of the longest line.
        interval: Seconds between two passed-on updates of one progress bar.
    """

    def __init__(self, max_line: int = MAX_LINE, interval: float = PROGRESS_INTERVAL) -> None:
        self._max = max_line
        self._interval = interval
        self._rest = b""
        self._last_update = float("-inf")
        self._returned = False

    def feed(self, data: bytes, now: float) -> Iterator[bytes]:
        """Take the next bytes of the pipe, yield the lines they complete. `now` is in seconds, any origin."""
        if self._returned and data:
            # The line was passed on at its return: a newline right after it is the other half of \r\n.
            self._returned, data = False, data.removeprefix(b"\n")
        *complete, rest = (self._rest + data).split(b"\n")
        for line in complete:
            overwritten, _, shown = line.rstrip(b"\r").rpartition(b"\r")
            yield from self._progress(overwritten, now)
            yield from self._pieces(shown)
        body = rest.rstrip(b"\r")
        if len(body) < len(rest) and body and self._due(now):
            yield from self._pieces(body.rpartition(b"\r")[2])
            self._rest, self._returned = b"", True
            return
        # A return at the very end may be half of a \r\n: it overwrites nothing yet.
        pending = b"\r" if len(body) < len(rest) else b""
        overwritten, _, shown = body.rpartition(b"\r")
        yield from self._progress(overwritten, now)
        while len(shown) > self._max:
            piece = _cut(shown, self._max)
            yield piece
            shown = shown[len(piece) :]
        self._rest = shown + pending

    def flush(self) -> Iterator[bytes]:
        """Yield what stands without an end: the pipe is closed."""
        rest, self._rest = self._rest.rstrip(b"\r"), b""
        if rest:
            yield rest

    def _progress(self, overwritten: bytes, now: float) -> Iterator[bytes]:
        """Pass on the last of some overwritten updates, unless one was passed on just before."""
        update = overwritten.rstrip(b"\r").rpartition(b"\r")[2]
        if update and self._due(now):
            yield from self._pieces(update)

    def _due(self, now: float) -> bool:
        """Return whether an update may be passed on, and count it as passed on."""
        due = now - self._last_update >= self._interval
        if due:
            self._last_update = now
        return due

    def _pieces(self, line: bytes) -> Iterator[bytes]:
        while len(line) > self._max:
            piece = _cut(line, self._max)
            yield piece
            line = line[len(piece) :]
        yield line


def _cut(data: bytes, limit: int) -> bytes:
    """Return at most `limit` bytes from the start of `data`, not ending inside a UTF-8 character."""
    if len(data) <= limit:
        return data
    end = limit
    while end > limit - 4 and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]
