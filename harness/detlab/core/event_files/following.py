"""One event file, read further as it grows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from detlab.core.event_files.finding import open_regular
from detlab.core.event_files.messages import BadEventMessage
from detlab.core.event_files.records import MOST_RECORD, RecordReader
from detlab.core.event_files.summaries import LoggedEvent, read_event

MOST_AT_ONCE = 64 * 1024 * 1024
"""Bytes of one file that are read before the next file has its turn."""


class EventFile:
    """One file, from its start.

    Args:
        path: Where it is.

    Attributes:
        begun: When its first event was written, in seconds since the epoch; 0: it does not say. None: it has none yet.
        unreadable: Records whose bytes are no event.
        cut: Whether it has become shorter than what was read of it, or is another file by now.
        left_out: Kinds of values that were passed over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begun: float | None = None
        self.unreadable = 0
        self.cut = False
        self.left_out: set[str] = set()
        self._identity: tuple[int, int] | None = None
        self._descriptor = -1
        self._plugins: dict[str, str] = {}
        self._reader = RecordReader(self._read)

    @property
    def offset(self) -> int:
        """Bytes that were read."""
        return self._reader.offset

    @property
    def is_over(self) -> bool:
        """Whether nothing more of it can be read."""
        return self.cut or bool(self._reader.broken)

    def troubles(self) -> Iterator[tuple[str, str]]:
        """Yield what was wrong with it, in words, each with a short name."""
        if self._reader.damaged or self.unreadable:
            yield "damaged", "records that are damaged were passed over"
        if self._reader.too_large:
            yield "large", f"records of more than {MOST_RECORD // 2**20} MiB were passed over"
        if self._reader.broken:
            yield "broken", f"{self._reader.broken}: the rest of the file is not read"
        if self.cut:
            yield "cut", "the file was replaced or cut off: the rest of it is not read"

    def events(self, most: int = MOST_AT_ONCE) -> Iterator[LoggedEvent]:
        """Yield the events that are new.

        Args:
            most: Bytes after which it stops; the next call goes on there.

        Raises:
            NoEventFile: It is no plain file.
            OSError: It cannot be read.
        """
        self._descriptor = open_regular(self.path)
        try:
            found = os.fstat(self._descriptor)
            identity = found.st_dev, found.st_ino
            if found.st_size < self.offset or self._identity not in {None, identity}:
                self.cut = True
                return
            self._identity, begin = identity, self.offset
            for record in self._reader.records(found.st_size):
                event = self._event(record)
                if event is not None:
                    yield event
                if self.offset - begin >= most:
                    return
        finally:
            os.close(self._descriptor)
            self._descriptor = -1

    def _event(self, record: bytes) -> LoggedEvent | None:
        try:
            event = read_event(record, self._plugins)
        except (BadEventMessage, OverflowError):
            self.unreadable += 1
            return None
        if self.begun is None:
            self.begun = event.time
        if len(self.left_out) < 100:
            self.left_out |= event.left_out
        return event

    def _read(self, count: int, offset: int) -> bytes:
        return os.pread(self._descriptor, count, offset)
