"""What a script prints, copied line by line into its run; it appears where it did before."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any, Literal

MOST_CHARS = 16_000
"""Of a line; a longer one is several."""
Stream = Literal["stdout", "stderr"]


class OutputLines:
    """Makes lines of pieces of text: of a progress bar that is drawn again and again, the last state is one."""

    def __init__(self) -> None:
        self._rest = ""

    def add(self, text: str) -> list[str]:
        """Return the lines that a piece of text completes."""
        if "\n" not in text and len(self._rest) + len(text) < MOST_CHARS:
            self._rest += text
            if "\r" in text:
                self._rest = self._rest[max(0, self._rest.rstrip("\r").rfind("\r")) :]
            return []
        *whole, rest = (self._rest + text).split("\n")
        found = [part for line in whole for part in _parts(line)]
        while len(rest) >= MOST_CHARS:
            found.append(rest[:MOST_CHARS])
            rest = rest[MOST_CHARS:]
        self._rest = rest
        return found

    def end(self) -> list[str]:
        """Return what is left."""
        rest, self._rest = self._rest, ""
        return _parts(rest) if rest.strip("\r") else []


def _parts(line: str) -> list[str]:
    shown = line.rstrip("\r").rpartition("\r")[2]
    return [shown[at : at + MOST_CHARS] for at in range(0, len(shown), MOST_CHARS)] or [""]


class OutputCopy:
    """Copies what is written to standard output and standard error.

    The streams stay the same objects, so that whoever has kept one is copied, too.

    Args:
        take: Takes each line.
    """

    def __init__(self, take: Callable[[Stream, str], None]) -> None:
        self._take = take
        self._busy = threading.local()
        self._lock = threading.RLock()
        self._lines: dict[Stream, OutputLines] = {"stdout": OutputLines(), "stderr": OutputLines()}
        self._streams: dict[Stream, tuple[Any, Any]] = {}

    def start(self) -> None:
        """Begin."""
        for name in self._lines:
            stream = getattr(sys, name, None)
            write = getattr(stream, "write", None)
            if stream is None or write is None:
                continue
            copying = self._copying(name, write)
            with contextlib.suppress(AttributeError, TypeError):  # an object that takes no attributes stays as it is
                stream.write = copying
                self._streams[name] = stream, copying

    def stop(self) -> None:
        """End, with the lines that are not complete."""
        for name, (stream, copying) in self._streams.items():
            if vars(stream).get("write") is copying:
                del stream.write
            with self._lock:
                for line in self._lines[name].end():
                    self._take(name, line)
        self._streams.clear()

    def _copying(self, name: Stream, write: Callable[[str], Any]) -> Callable[[str], Any]:
        def copying(text: str) -> Any:
            written = write(text)
            if name in self._streams and isinstance(text, str) and not getattr(self._busy, "now", False):
                self._copy(name, text)
            return written

        return copying

    def _copy(self, name: Stream, text: str) -> None:
        self._busy.now = True  # what copying itself prints is not copied
        try:
            with self._lock:
                for line in self._lines[name].add(text):
                    self._take(name, line)
        except Exception:  # a script must not end because of a copy of what it prints
            self._streams.pop(name, None)
        finally:
            self._busy.now = False
