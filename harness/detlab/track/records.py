"""The records of one process of a run: appended to its spool, and held in memory while the disk has no room.

It raises nothing, unless that was asked for: what goes wrong is told once, and counted.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from detlab.core.metrics.spool import Spool, SpoolError
from detlab.track.folder import RECORDS

logger = logging.getLogger("detlab.track")
MOST_HELD = 10_000
"""Records that wait in memory for room on the disk; later ones are lost, and counted."""
RETRY_SECONDS = 2.0
_TAIL = 256 * 1024


class RunSpool(Spool):
    """The spool of a process of a run. It never waits: where there is no room, it says so."""

    def append(self, kind: str, fields: Mapping[str, Any]) -> int:
        """Append one record and return its number.

        Raises:
            SpoolError: It could not be written; no part of it remains.
            ValueError: It is too large.
        """
        return self._append(kind, fields)


class LoggedRecords:
    """Where a process of a run logs to. Threads may share it, and so may forked processes.

    Args:
        directory: Of this process's records.
        strict: Raise what goes wrong.
        clock: Seconds since the epoch, for the records.
        pause_clock: Seconds that never go back.
    """

    def __init__(
        self,
        directory: Path,
        *,
        strict: bool = False,
        clock: Callable[[], float] = time.time,
        pause_clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spool = RunSpool(directory, clock=clock)
        self._strict = strict
        self._clock = clock
        self._pause_clock = pause_clock
        self._held: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._retry_at = 0.0
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self.lost = 0
        """Records that nothing could be done about."""

    def append(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Append a record; hold it in memory if that fails.

        Raises:
            SpoolError: The disk fails, and `strict` was asked for.
            ValueError: It is too large, and `strict` was asked for.
        """
        if self._held and not self._written_again():
            self._hold(kind, fields)
            return
        try:
            self._spool.append(kind, fields)
        except ValueError as error:
            self.tell("large", f"one record is not logged: {error}")
            self.lost += 1
            if self._strict:
                raise
        except SpoolError as error:
            if self._strict:
                raise
            self.tell("disk", f"{error}. The run goes on: what it logs waits in memory for room on the disk")
            self._hold(kind, fields)

    def flush(self) -> bool:
        """Write what waits in memory, force all to the disk, and return whether nothing is left."""
        done = self._written_again(now=True)
        try:
            self._spool.sync()
        except OSError as error:
            self.tell("sync", f"the records of the run may not survive a power failure: {error}")
        return done

    def tell(self, about: str, message: str) -> None:
        """Say something once."""
        if about not in self._told:
            self._told.add(about)
            logger.warning("%s", message)

    @property
    def last(self) -> int:
        """The number of the newest record."""
        return self._spool.last()

    @property
    def delivered(self) -> int:
        """Up to which record the master has all, as the process that sends has noted."""
        return self._spool.delivered() or 0

    def _hold(self, kind: str, fields: Mapping[str, Any]) -> None:
        with self._lock:
            self._retry_at = self._pause_clock() + RETRY_SECONDS
            if len(self._held) >= MOST_HELD:
                self.lost += 1
            else:
                self._held.append((kind, {"time": self._clock(), **fields}))

    def _written_again(self, *, now: bool = False) -> bool:
        with self._lock:
            if not now and self._pause_clock() < self._retry_at:
                return False
            while self._held:
                kind, fields = self._held[0]
                try:
                    self._spool.append(kind, fields)
                except SpoolError:
                    self._retry_at = self._pause_clock() + RETRY_SECONDS
                    return False
                except ValueError:
                    self.lost += 1
                self._held.popleft()
            return True


def has_ended(directory: Path) -> bool:
    """Whether the process of these records has said that it ends."""
    return any(record.get("kind") == "exit" for record in newest(directory))


def newest(directory: Path) -> list[Mapping[str, Any]]:
    """Return the newest complete records of a process, the last 256 kB of them."""
    try:
        with (directory / RECORDS).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            text = file.read()
    except OSError:
        return []
    lines = text[: text.rfind(b"\n") + 1].split(b"\n")
    found: list[Mapping[str, Any]] = []
    for line in lines[1 if size > _TAIL else 0 :]:
        try:
            record: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            found.append(record)
    return found
