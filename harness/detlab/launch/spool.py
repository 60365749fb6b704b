"""Spool files: records in order, one JSON object per line, appended by one side and read by another.

A reader may meet a last line that is still being written: without its newline it does not exist yet. A line that
was torn by a crash and then followed by others is no JSON; it is skipped and counted, because the writer never got
to say that it was written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

_CHUNK = 1 << 18
MAX_LINE = 8 << 20
"""Bytes of the longest line that a reader holds in memory while it looks for its end."""


@dataclass(frozen=True)
class Entry:
    """One spooled record. `line` is its JSON without the newline; `end` the file offset behind it."""

    seq: int
    line: bytes
    end: int


class Appender:
    """Append records to a spool file that only this process writes.

    Args:
        path: The file; it may exist, a torn last line is cut off.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._fd).st_size
        self._cut_torn_line()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._size

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Write records at the end, all or none.

        Raises:
            OSError: The disk is full or failing; the file is as it was before.
        """
        data = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._size + written)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def truncate(self) -> None:
        """Empty the file: all of it is committed by the master."""
        os.ftruncate(self._fd, 0)
        self._size = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _cut_torn_line(self) -> None:
        end = self._size
        while end > 0:
            start = max(0, end - _CHUNK)
            newline = os.pread(self._fd, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end != self._size:
            os.ftruncate(self._fd, end)
            self._size = end


class Reader:
    """Read a spool file from an offset on, as far as it is complete.

    Args:
        opener: Opens the file for reading, or raises FileNotFoundError while there is none.
        after: Records up to this seq are skipped: they are committed.
    """

    def __init__(self, opener: Callable[[], BinaryIO], after: int = 0) -> None:
        self._opener = opener
        self._file: BinaryIO | None = None
        self._offset = 0
        self._seq = after
        self.skipped = 0
        """Lines that were no record."""

    @property
    def offset(self) -> int:
        """Bytes of the file that are read."""
        return self._offset

    def read(self, max_records: int, max_bytes: int) -> list[Entry]:
        """Return the next records: at most `max_records`, at most `max_bytes` of JSON (but one at least)."""
        file = self._open()
        entries: list[Entry] = []
        if file is None:
            return entries
        total = 0
        for line in self._block(file.fileno()):
            entry = self._parse(line, self._offset + len(line) + 1)
            if entry is not None:
                total += len(entry.line) + 1
                if entries and (len(entries) >= max_records or total > max_bytes):
                    break
                entries.append(entry)
                self._seq = entry.seq
            self._offset += len(line) + 1
        return entries

    def _block(self, descriptor: int) -> list[bytes]:
        """Return the complete lines of the next block. Never buffered: the writer may cut off a torn line."""
        size = _CHUNK
        while True:
            data = os.pread(descriptor, size, self._offset)
            end = data.rfind(b"\n")
            if end >= 0:
                return data[:end].split(b"\n")
            if len(data) < size:
                return []  # being written
            if size >= MAX_LINE:
                self.skipped += 1
                self._offset += len(data)  # no record is that long; its end will be no JSON either
            else:
                size *= 2

    def restart(self) -> None:
        """Read from the start of the file again: its writer emptied it."""
        self._offset = 0

    def size(self) -> int:
        """Bytes in the file now."""
        file = self._open()
        return os.fstat(file.fileno()).st_size if file is not None else 0

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> BinaryIO | None:
        if self._file is None:
            try:
                self._file = self._opener()
            except FileNotFoundError:
                return None
        return self._file

    def _parse(self, line: bytes, end: int) -> Entry | None:
        try:
            seq = json.loads(line)["seq"]
        except (ValueError, KeyError, TypeError, RecursionError):  # the last: nested thousands deep
            self.skipped += 1
            return None
        if not isinstance(seq, int) or seq <= self._seq:
            return None  # committed before, or written twice
        return Entry(seq, line, end)


def open_regular(path: Path) -> BinaryIO:
    """Open a spool file for reading; the opener of `Reader` for one's own files."""
    return path.open("rb")


def read_mark(path: Path) -> int:
    """Return the seq noted in an `.acked` file, 0 when there is none."""
    try:
        return int(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return 0
