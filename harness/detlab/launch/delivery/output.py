"""Copies the task's pipes to the log spool without loss: the task blocks when the spool is full.

When the disk has no room, so has the line that says so. A small file beside the spool keeps some for it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from detlab.launch.delivery.lines import LineSplitter, parse_line
from detlab.launch.delivery.spool import Appender

MAX_BACKLOG = 256 << 20
"""Bytes of logs that wait for the master before the task's writes block."""
RECYCLE = 16 << 20
"""Bytes of a fully delivered log spool from which on it is emptied."""
RESERVE = 1 << 16
"""Bytes of the file that is deleted so that there is room to report a full disk."""
_READ = 1 << 16


class LogSpool:
    """Number log records and append them to the spool; block while it holds too much.

    Args:
        path: `spool/logs.jsonl`.
        max_backlog: Bytes that may wait for the master.
        recycle: Size from which on a delivered spool is emptied.
    """

    def __init__(
        self,
        path: Path,
        max_backlog: int = MAX_BACKLOG,
        recycle: int = RECYCLE,
    ) -> None:
        self._appender = Appender(path)
        self._reserve = path.with_name("reserve")
        self._keep_reserve()
        self._full = False
        """Whether the disk had no room, and has not had room for the reserve since."""
        self._notify: Callable[[], None] = lambda: None
        self._max_backlog = max_backlog
        self._recycle = recycle
        self._committed = 0
        self._seq = 0
        self._room = threading.Condition()
        self._waiting = 0

    def write(self, stdtype: str, lines: Sequence[bytes]) -> None:
        """Append lines of one pipe; waits while the spool is full or the disk has no room."""
        if not lines:
            return
        with self._room:
            self._waiting += 1
            while self._appender.size - self._committed >= self._max_backlog:
                self._room.wait()
            now = time.time()
            while not self._try_append(stdtype, lines, now):
                self._room.wait(1.0)
            if self._full and self._keep_reserve():
                self._full = False
                self._try_append("launcher", [b"detlab: disk has space again"], now)
            self._waiting -= 1
        self._notify()

    def set_notify(self, notify: Callable[[], None]) -> None:
        """Call `notify` after each append from now on."""
        self._notify = notify

    @property
    def holding(self) -> bool:
        """Whether output waits for room."""
        return self._waiting > 0

    def say(self, text: str) -> None:
        """Log a line of the launcher itself."""
        self.write("launcher", [text.encode()])

    def say_at_once(self, text: str) -> None:
        """Log a line of the launcher itself without waiting for room: for the thread that makes room in the spool."""
        with self._room:
            self._try_append("launcher", [text.encode()], time.time())

    def open_reader(self) -> BinaryIO:
        """Open the file that is being written for reading, even if its path now leads to another one."""
        return self._appender.open_reader()

    @property
    def last(self) -> int:
        """Number of the newest record."""
        return self._seq

    @property
    def size(self) -> int:
        """Bytes that were written into the file."""
        return self._appender.size

    def committed(self, end: int) -> bool:
        """Note that the master has everything before this offset; return whether the file was emptied."""
        with self._room:
            self._committed = end
            recycle = end == self._appender.size and end >= self._recycle
            if recycle:
                self._appender.truncate()
                self._committed = 0
            self._room.notify_all()
        return recycle

    def close(self) -> None:
        """Close the file."""
        self._appender.close()

    def _try_append(self, stdtype: str, lines: Sequence[bytes], now: float) -> bool:
        """Append lines; False on a full disk: output is held back (the task blocks on its pipe) until it has room."""
        records = [self._record(stdtype, line, now, self._seq + 1 + i) for i, line in enumerate(lines)]
        try:
            self._appender.append(records)
        except OSError as error:
            if not self._full:
                self._full = True
                self._tell_of(error, now)
            return False
        self._seq += len(records)
        return True

    def _tell_of(self, error: OSError, now: float) -> None:
        """Log that the disk is full, in the space reserved for that; the master gets the line at once."""
        why = f"{self._reserve.parent}: {error.strerror or error}"
        text = f"detlab: disk full: {why}. Output and reports of this task wait for free space (df -h)"
        with contextlib.suppress(OSError):
            self._reserve.unlink(missing_ok=True)
        if self._try_append("launcher", [text.encode()], now):
            self._notify()

    def _keep_reserve(self) -> bool:
        """Reserve some space on the disk for when it is full; return whether there was any."""
        try:
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVE)
            finally:
                os.close(descriptor)
        except OSError:
            with contextlib.suppress(OSError):
                self._reserve.unlink(missing_ok=True)
            return False
        return True

    @staticmethod
    def _record(stdtype: str, raw: bytes, now: float, seq: int) -> dict[str, Any]:
        line = parse_line(raw)
        record: dict[str, Any] = {
            "kind": "log",
            "seq": seq,
            "time": now,
            "stdtype": stdtype,
            "text": line.text,
        }
        if line.rank is not None:
            record["rank"] = line.rank
        if line.level is not None:
            record["level"] = line.level
        return record


class OutputPump:
    """Read the task's stdout and stderr in a thread until both are closed.

    Args:
        pipes: stdtype -> read end; closed by the pump.
        spool: Where the lines go.
    """

    def __init__(self, pipes: dict[str, int], spool: LogSpool) -> None:
        self._pipes = pipes
        self._spool = spool
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all output is spooled; return whether it is."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        splitters = {stdtype: LineSplitter() for stdtype in self._pipes}
        with selectors.DefaultSelector() as selector:
            for stdtype, descriptor in self._pipes.items():
                selector.register(descriptor, selectors.EVENT_READ, stdtype)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, _READ)
                    splitter = splitters[key.data]
                    lines = list(splitter.feed(data, time.monotonic()) if data else splitter.flush())
                    self._spool.write(key.data, lines)
                    if not data:
                        selector.unregister(key.fd)
                        os.close(key.fd)
