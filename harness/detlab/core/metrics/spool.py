"""The metrics spool of a task: append only, never waits for the master.

`$DET_TASK_DIR/spool/metrics.jsonl` takes one record per line; the launcher ships it. Several processes may
append: a lock file orders them, and the last complete line (or `metrics.seq`, if the launcher emptied the
file) determines the next sequence number. A line that a killed writer left half-written is cut off by the
next one, so `seq` runs 1, 2, 3, … without gap or duplicate.

A training loop waits for each report, so the usual case is short: the files stay open, and where the file and
`metrics.seq` are as this process left them nobody else has written, and nothing needs to be read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from detlab.core.full_disk import await_room, is_full
from detlab.errors import DetlabError
from detlab.schemas.wire import RefusedRecord, encode_floats

logger = logging.getLogger("detlab.core")

_TAIL_BLOCK = 64 * 1024
MAX_RECORD = 3_900_000
"""Bytes of one record; the launcher sends at most 4 MB at once."""
_SEQ = b"%020d\n"
"""How `metrics.seq` has its number: of one width, never half old and half new."""


class SpoolError(DetlabError):
    """The spool of this task cannot be written: its disk fails, or has been full for a day."""

    default_code = "spool.failed"


class RecordsRefused(DetlabError):
    """The master will never take records that were reported earlier.

    Attributes:
        refused: The records, by sequence number, with the master's reasons.
    """

    default_code = "records.refused"

    def __init__(self, refused: list[RefusedRecord]) -> None:
        lines = [f"  report {record.seq}: {record.message} ({record.code})" for record in refused]
        super().__init__("\n".join(["the master refused earlier reports:", *lines]))
        self.refused = refused


def _tail(fd: int, size: int) -> tuple[bytes, int]:
    """Return the last complete line and the offset where complete lines end."""
    start, block = size, b""
    while start > 0:
        start = max(0, start - _TAIL_BLOCK)
        block = os.pread(fd, size - start, start)
        end = block.rfind(b"\n")
        if end < 0:
            continue
        before = block.rfind(b"\n", 0, end)
        if before >= 0 or start == 0:
            return block[before + 1 : end], start + end + 1
    return b"", 0


def _seq_of(line: bytes) -> int:
    try:
        return int(json.loads(line)["seq"])
    except (ValueError, KeyError, TypeError):
        return 0


def _number_in(path: Path) -> int | None:
    try:
        return int(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None


@dataclass
class _Files:
    """The files of a spool, open, and how this process left them."""

    lock: int
    records: int
    number: int
    size: int = -1
    """Of `metrics.jsonl`; -1: not known."""
    last: int = 0
    """The last sequence number that this process knows of."""
    fresh: bool = True
    """Whether they were opened by this call."""

    def close(self) -> None:
        """Close them, and forget their numbers: the next file that anybody opens has one of these."""
        fds = (self.records, self.number, self.lock)  # closing the lock drops it
        self.records = self.number = self.lock = -1
        for fd in fds:
            os.close(fd)


class _Replaced(Exception):
    """The open file is no longer the one in its place."""


class Spool:
    """Writer of one task's metrics stream. Threads may share it; a forked process opens the files for itself.

    Args:
        directory: The task's `spool` directory; made if it is missing.
        clock: Gives the time of a record, in seconds since the epoch.
        sleep: Waits so many seconds for room on a full disk.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Any] = time.sleep,
    ) -> None:
        self._directory = directory
        self._clock = clock
        self._sleep = sleep
        self._path = directory / "metrics.jsonl"
        self._seq_path = directory / "metrics.seq"
        self._lock_path = directory / "metrics.lock"
        self._acked_path = directory / "metrics.acked"
        self._refused_path = str(directory / "refused.jsonl")
        self._refused_offset = 0
        self._files: _Files | None = None
        self._threads = threading.Lock()
        directory.mkdir(mode=0o700, exist_ok=True)
        _spools.add(self)

    def __del__(self) -> None:
        if (files := getattr(self, "_files", None)) is not None:
            files.close()

    def append(self, kind: str, fields: Mapping[str, Any]) -> int:
        """Append one record and return its sequence number. While the disk is full it waits for room.

        Raises:
            SpoolError: The record could not be written; no part of it remains.
            ValueError: The record is larger than `MAX_RECORD`.
        """
        try:
            return self._append(kind, fields)
        except SpoolError as error:
            if not is_full(error):
                raise
        return await_room(lambda: self._append(kind, fields), "a report", sleep=self._sleep)

    def _append(self, kind: str, fields: Mapping[str, Any]) -> int:
        try:
            with self._threads:
                try:
                    return self._append_to(self._files or self._open(), kind, fields)
                except _Replaced:
                    return self._append_to(self._reopen(), kind, fields)
        except OSError as error:
            raise SpoolError(f"cannot append to {self._path}: {error}") from error

    def _append_to(self, files: _Files, kind: str, fields: Mapping[str, Any]) -> int:
        fcntl.flock(files.lock, fcntl.LOCK_EX)  # orders the processes
        try:
            return self._append_locked(files, kind, fields)
        except BaseException:
            files.size = -1  # what is there now is found out by the next call
            raise
        finally:
            fcntl.flock(files.lock, fcntl.LOCK_UN)

    def _append_locked(self, files: _Files, kind: str, fields: Mapping[str, Any]) -> int:
        if not self._is_as_left(files):
            if not (files.fresh or self._is_in_place(files)):
                raise _Replaced
            self._repair(files)
        seq = files.last + 1
        line = _line({"kind": kind, "seq": seq, "time": self._clock(), **fields})
        self._write(files.records, line, files.size)
        try:
            self._write_seq(seq)
        except OSError:
            pass  # the record is there, and says its number itself
        files.last, files.size = seq, files.size + len(line)
        return seq

    def sync(self) -> None:
        """Force what was appended to disk, so that no checkpoint outlives the metrics before it."""
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def last(self) -> int:
        """Return the sequence number of the last record, whichever process appended it; 0 if there is none."""
        with self._threads:
            mine = 0 if self._files is None else self._files.last
        return max(mine, _number_in(self._seq_path) or 0)

    def delivered(self) -> int | None:
        """Return the number up to which the master has taken or refused all records; None if no launcher sends them."""
        return _number_in(self._acked_path)

    def raise_refusals(self) -> None:
        """Raise the refusals that arrived since the last call.

        Raises:
            RecordsRefused: The master will never take some earlier records.
        """
        refused = self._new_refusals()
        if refused:
            raise RecordsRefused(refused)

    def _new_refusals(self) -> list[RefusedRecord]:
        if not os.access(self._refused_path, os.F_OK):  # asked at each report, and as a rule there is none
            return []
        with open(self._refused_path, "rb") as stream:  # noqa: PTH123  (a path made once)
            stream.seek(self._refused_offset)
            block = stream.read()
        complete = block[: block.rfind(b"\n") + 1]
        self._refused_offset += len(complete)
        return [RefusedRecord.model_validate_json(line) for line in complete.splitlines() if line.strip()]

    def _forked(self) -> None:
        """Close the parent's files: its lock is ours, too, as long as we have its file, even when it is dead."""
        files, self._files, self._threads = self._files, None, threading.Lock()
        if files is not None:
            files.close()

    def _reopen(self) -> _Files:
        """Open the files that are in the place of those we have."""
        logger.warning("%s was removed or replaced: reports that the launcher had not shipped are lost", self._path)
        assert self._files is not None
        last, files, self._files = self._files.last, self._files, None
        files.close()
        files = self._open()
        files.last = last
        return files

    def _open(self) -> _Files:
        with contextlib.ExitStack() as undo:

            def opened(path: Path, flags: int) -> int:
                fd = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
                undo.callback(os.close, fd)
                return fd

            lock = opened(self._lock_path, os.O_RDWR)
            records = opened(self._path, os.O_RDWR | os.O_APPEND)
            files = self._files = _Files(lock, records, opened(self._seq_path, os.O_RDWR))
            undo.pop_all()
        return files

    @staticmethod
    def _is_as_left(files: _Files) -> bool:
        """Whether the file was not written to, emptied or removed since this process last wrote."""
        if files.size < 0:
            return False
        found = os.fstat(files.records)
        if found.st_size != files.size or not found.st_nlink:
            return False
        return os.pread(files.number, 32, 0) == _SEQ % files.last

    def _is_in_place(self, files: _Files) -> bool:
        """Whether the open file is the one that the launcher finds."""
        try:
            return os.path.samestat(os.fstat(files.records), os.stat(self._path))  # noqa: PTH116  (beside fstat)
        except FileNotFoundError:
            return False

    def _repair(self, files: _Files) -> None:
        """Cut a torn last line; find out where to append and the last sequence number used."""
        size = os.fstat(files.records).st_size
        line, end = _tail(files.records, size)
        if end < size:
            logger.warning("cut %d bytes that a killed writer left in %s", size - end, self._path)
            os.ftruncate(files.records, end)
        files.size, files.fresh = end, False
        files.last = max(files.last, _seq_of(line))
        with contextlib.suppress(ValueError):
            files.last = max(files.last, int(os.pread(files.number, 32, 0)))

    def _write_seq(self, seq: int) -> None:
        assert self._files is not None
        os.pwrite(self._files.number, _SEQ % seq, 0)

    @staticmethod
    def _write(fd: int, line: bytes, at: int) -> None:
        written = os.write(fd, line)
        if written != len(line):
            os.ftruncate(fd, at)
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes fitted")


_spools: weakref.WeakSet[Spool] = weakref.WeakSet()
"""All of this process."""


def _forked() -> None:
    """Give each spool of a forked process its own files, while the process has only one thread."""
    for spool in list(_spools):
        spool._forked()


os.register_at_fork(after_in_child=_forked)


def _line(record: dict[str, Any]) -> bytes:
    """Return a record as a line of strict JSON.

    Raises:
        ValueError: It is too large.
    """
    try:
        line = to_json(record, inf_nan_mode="strings") + b"\n"
    except ValueError:  # text that is no Unicode
        line = json.dumps(encode_floats(record), allow_nan=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_RECORD:
        raise ValueError(f"one report may have {MAX_RECORD} bytes as JSON, this one has {len(line)}")
    return line
