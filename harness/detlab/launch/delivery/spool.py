"""Spool files: records in order, one JSON object per line, appended by one side and read by another.

A reader may meet a last line that is still being written: without its newline it does not exist yet. A line that
was torn by a crash and then followed by others is no JSON; it is skipped and counted, because the writer never
confirmed that it was written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

_CHUNK = 1 << 18
IDLE_POLLS = 20
"""Reads without new data, after which the reader checks whether the file was replaced."""
MAX_GAP = 1_000_000
"""So many records may be lost between two."""
MAX_LINE = 8 << 20
"""Bytes of the longest line that a reader holds in memory while it looks for its end."""


@dataclass(frozen=True)
class SpoolEntry:
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

    def open_reader(self) -> BinaryIO:
        """Open this very file for reading: its path may lead to another one in the meantime."""
        return os.fdopen(os.dup(self._fd), "rb")

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


@dataclass(frozen=True)
class Damage:
    """What somebody did to a spool who is not its writer: a user's code can write into its own task's directory."""

    shrunk: int = 0
    """How often the file was cut off."""
    replaced: int = 0
    """How often another file was put into its place."""
    repeated: int = 0
    """Records whose number is smaller than that of one before them: forged, or their writer's count was changed."""
    lost: int = 0
    """Records that were written and are gone."""

    def __bool__(self) -> bool:
        return any((self.shrunk, self.replaced, self.repeated, self.lost))


class SpoolReader:
    """Read a spool file from an offset, as far as it is complete.

    A file that was cut off or replaced is read again from its start: records that were read before are known by their
    numbers, and none is given twice. What is lost is counted in `damage`.

    Args:
        opener: Opens the file for reading, or raises FileNotFoundError while there is none.
        after: Records up to this seq are skipped: they are committed.
        expects: The seq of the next record, if it is known: those before the first that is found are lost.
        end: Where the file ends for its writer; None: where it ends.
        written: The seq of the newest record, as its writer says; None: it does not.
    """

    def __init__(
        self,
        opener: Callable[[], BinaryIO],
        after: int = 0,
        *,
        expects: int | None = None,
        end: Callable[[], int] | None = None,
        written: Callable[[], int] | None = None,
    ) -> None:
        self._opener = opener
        self._file: BinaryIO | None = None
        self._offset = 0
        self._seq = after
        self._expects = expects
        self._end = end
        self._written = written
        self._highest = 0
        """Of the records read since the file was last started over."""
        self._doubted = 0
        """The newest record as its writer said when it was not found; not found again, it is lost."""
        self._looked_for = 0
        """The record that was missing when the file was read again for it."""
        self._idle = 0
        self.skipped = 0
        """Lines that were no record."""
        self.damage = Damage()

    @property
    def offset(self) -> int:
        """Bytes of the file that are read."""
        return self._offset

    @property
    def seq(self) -> int:
        """Up to which record all are read, or lost."""
        return self._seq

    def read(self, max_records: int, max_bytes: int) -> list[SpoolEntry]:
        """Return the next records: at most `max_records`, at most `max_bytes` of JSON (but one at least)."""
        file = self._open()
        entries: list[SpoolEntry] = []
        if file is None:
            return entries
        self._notice_cut(file.fileno())
        before = -1
        while not entries and self._offset != before:  # lines that are no new records are passed over in one go
            before = self._offset
            while self._read_block(file.fileno(), entries, max_records, max_bytes):
                before = -1
        self._idle = 0 if entries else self._idle + 1
        if self._idle >= IDLE_POLLS:
            self.settle()
        return entries

    def _read_block(self, descriptor: int, entries: list[SpoolEntry], max_records: int, max_bytes: int) -> bool:
        """Read the records of the next block; return whether records before one of them are missing, and the file is
        now read from its start."""
        total = sum(len(entry.line) + 1 for entry in entries)
        for line in self._block(descriptor):
            entry = self._parse(line, self._offset + len(line) + 1)
            if entry is not None:
                if self._looks_again(entry.seq):
                    return True
                total += len(entry.line) + 1
                if entries and (len(entries) >= max_records or total > max_bytes):
                    break
                entries.append(entry)
                self._note(entry.seq)
            self._offset += len(line) + 1
        return False

    def _looks_again(self, seq: int) -> bool:
        """Whether the file is read again, since records before this one are missing: it may have been cut off and have
        grown beyond our offset since."""
        if self._expects is None or seq <= self._expects or self._looked_for == self._expects:
            return False
        self._looked_for = self._expects
        self.skipped = 0  # they are met again
        self.restart()
        return True

    def settle(self) -> bool:
        """Check, once all that is there was read, whether it is all that was written; return whether that is settled.

        If it is not, there may be more to read; then call this again.
        """
        self._idle = 0
        if self._was_replaced():
            return False
        newest = self._newest()
        if self._seq >= newest:
            self._doubted = 0
        elif self._doubted == 0:
            # It may have been appended since the last read, or lie before our offset in a file that was cut off.
            self._doubted = newest
            self.skipped = 0
            self.restart()
            return False
        else:
            self._count(lost=self._doubted - self._seq)
            self._seq, self._doubted = self._doubted, 0
            self._expects = self._seq + 1
        return True

    def _newest(self) -> int:
        return 0 if self._written is None else self._written()

    def _was_replaced(self) -> bool:
        """Go over to the file that is in the place of the one that we have read to its end."""
        if self._file is None:
            return False
        try:
            found = self._opener()
        except OSError:
            return False  # removed: its writer will make another one
        if os.path.samestat(os.fstat(found.fileno()), os.fstat(self._file.fileno())):
            found.close()
            return False
        self._file.close()
        self._file = found
        self._count(replaced=1)
        self.restart()
        return True

    def _notice_cut(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size < self._offset:
            self._count(shrunk=1)
            self.restart()

    def _note(self, seq: int) -> None:
        if self._expects is not None and seq > self._expects:
            self._count(lost=seq - self._expects)
        self._seq, self._expects, self._doubted = seq, seq + 1, 0

    def _count(self, **more: int) -> None:
        self.damage = replace(self.damage, **{name: getattr(self.damage, name) + n for name, n in more.items()})

    def _block(self, descriptor: int) -> list[bytes]:
        """Return the complete lines of the next block. Never buffered: the writer may cut off a torn line."""
        size = _CHUNK
        while True:
            wanted = size if self._end is None else max(0, min(size, self._end() - self._offset))
            data = os.pread(descriptor, wanted, self._offset)
            if data.startswith(b"\0") and self._leapt(descriptor):
                continue
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

    def _leapt(self, descriptor: int) -> bool:
        """Go over a hole in the file, of any size; return whether there was one."""
        try:
            begin = os.lseek(descriptor, self._offset, os.SEEK_DATA)
        except OSError:  # nothing but a hole up to the end
            begin = os.fstat(descriptor).st_size
        if self._end is not None:
            begin = min(begin, self._end())
        leapt = begin > self._offset
        self._offset = max(self._offset, begin)
        return leapt

    def restart(self) -> None:
        """Read from the start of the file again: its writer emptied it, or it is another one."""
        self._offset = self._highest = 0

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

    def _parse(self, line: bytes, end: int) -> SpoolEntry | None:
        line = line.lstrip(b"\0")  # a writer that continues behind where the file was cut off leaves a hole
        if not line:
            return None
        try:
            seq = json.loads(line)["seq"]
        except (ValueError, KeyError, TypeError, RecursionError):  # the last: nested thousands deep
            self.skipped += 1
            return None
        if not isinstance(seq, int):
            return None
        if seq > self._seq + MAX_GAP and seq > self._newest() + 1:
            self.skipped += 1  # forged: believed, it would have all that come after it taken for old ones
            return None
        if seq < self._highest:
            self._count(repeated=1)
        self._highest = max(self._highest, seq)
        return SpoolEntry(seq, line, end) if seq > self._seq else None  # else committed before, or written twice


def open_regular(path: Path) -> BinaryIO:
    """Open a spool file for reading; the opener of `SpoolReader` for one's own files."""
    return path.open("rb")


def read_mark(path: Path) -> int:
    """Return the seq noted in an `.acked` file, or in `metrics.seq`; 0 when there is none."""
    try:
        return int(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return 0
