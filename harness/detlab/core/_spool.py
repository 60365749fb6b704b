"""The metrics spool of a task: append only, never waits for the master.

`$DET_TASK_DIR/spool/metrics.jsonl` takes one record per line; the launcher ships it. Several processes may
append: a lock file orders them, and the last complete line (or `metrics.seq`, if the launcher emptied the
file) says which sequence number comes next. Whatever a killed writer left half-written is cut off by the
next one, so `seq` runs 1, 2, 3, … without gap or double.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from detlab.errors import DetlabError
from detlab.schemas.wire import RefusedRecord, encode_floats

logger = logging.getLogger("detlab.core")

_TAIL_BLOCK = 64 * 1024
MAX_RECORD = 3_900_000
"""Bytes of one record; the launcher sends at most 4 MB at once."""


class SpoolError(DetlabError):
    """The spool of this task cannot be written, for example because the disk is full."""

    default_code = "spool.failed"


class RecordsRefused(DetlabError):
    """The master will never take records that were reported earlier.

    Attributes:
        refused: The records, by sequence number, with the master's reasons.
    """

    default_code = "records.refused"

    def __init__(self, refused: list[RefusedRecord]) -> None:
        lines = [f"  report {record.seq}: {record.message} ({record.code})" for record in refused]
        super().__init__("\n".join(["the master refused what was reported earlier:", *lines]))
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


class Spool:
    """Writer of one task's metrics stream.

    Args:
        directory: The task's `spool` directory; made if it is missing.
        clock: Gives the time of a record, in seconds since the epoch.
    """

    def __init__(self, directory: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._directory = directory
        self._clock = clock
        self._path = directory / "metrics.jsonl"
        self._seq_path = directory / "metrics.seq"
        self._lock_path = directory / "metrics.lock"
        self._refused_path = directory / "refused.jsonl"
        self._refused_offset = 0
        directory.mkdir(mode=0o700, exist_ok=True)

    def append(self, kind: str, fields: Mapping[str, Any]) -> int:
        """Append one record and return its sequence number.

        Raises:
            SpoolError: The record could not be written; nothing of it remains.
            ValueError: The record is larger than `MAX_RECORD`.
        """
        try:
            with self._locked() as fd:
                end, last = self._repair(fd)
                record = {"kind": kind, "seq": last + 1, "time": self._clock(), **encode_floats(dict(fields))}
                line = json.dumps(record, allow_nan=False, separators=(",", ":")).encode() + b"\n"
                if len(line) > MAX_RECORD:
                    raise ValueError(f"one report may have {MAX_RECORD} bytes as JSON, this one has {len(line)}")
                self._write(fd, line, end)
                self._write_seq(last + 1)
        except OSError as error:
            raise SpoolError(f"cannot append to {self._path}: {error}") from error
        return last + 1

    def sync(self) -> None:
        """Force what was appended to disk, so that no checkpoint outlives the metrics before it."""
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def raise_refusals(self) -> None:
        """Raise the refusals that arrived since the last call.

        Raises:
            RecordsRefused: The master will never take some earlier records.
        """
        refused = self._new_refusals()
        if refused:
            raise RecordsRefused(refused)

    def _new_refusals(self) -> list[RefusedRecord]:
        try:
            with self._refused_path.open("rb") as stream:
                stream.seek(self._refused_offset)
                block = stream.read()
        except FileNotFoundError:
            return []
        complete = block[: block.rfind(b"\n") + 1]
        self._refused_offset += len(complete)
        return [RefusedRecord.model_validate_json(line) for line in complete.splitlines() if line.strip()]

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                yield fd
            finally:
                os.close(fd)
        finally:
            os.close(lock)  # closing drops the lock

    def _repair(self, fd: int) -> tuple[int, int]:
        """Cut a torn last line; return where to append and the last sequence number used."""
        size = os.fstat(fd).st_size
        line, end = _tail(fd, size)
        if end < size:
            logger.warning("cut %d bytes that a killed writer left in %s", size - end, self._path)
            os.ftruncate(fd, end)
        last = _seq_of(line)
        with contextlib.suppress(FileNotFoundError, ValueError):
            last = max(last, int(self._seq_path.read_text(encoding="ascii")))
        return end, last

    def _write_seq(self, seq: int) -> None:
        fd = os.open(self._seq_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, b"%020d\n" % seq, 0)  # of one width: never half old and half new
        finally:
            os.close(fd)

    @staticmethod
    def _write(fd: int, line: bytes, at: int) -> None:
        written = os.write(fd, line)
        if written != len(line):
            os.ftruncate(fd, at)
            raise OSError(f"only {written} of {len(line)} bytes fitted")
