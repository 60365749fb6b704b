"""Processes by pid and start time: a pid alone may have been reused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from detlab.launch.host.procfs import is_alive, read_process
from detlab_hub.embedded.sockets.listeners import lent
from detlab_hub.embedded.state import NO_ROOM

_LOG_LIMIT = 32 * 1024 * 1024
"""Bytes; a log that is longer when its program starts is renamed to `NAME.log.1`."""


@dataclass(frozen=True)
class Running:
    """A process that this or an earlier supervisor started.

    Attributes:
        pid: Process id.
        ticks: Its start time, which distinguishes it from a later process with the same pid.
        started_at: Seconds since the epoch, for people.
    """

    pid: int
    ticks: int
    started_at: float

    @property
    def alive(self) -> bool:
        """Whether the process is still the same one and not a zombie."""
        return is_alive(self.pid, self.ticks)

    def signal(self, number: int) -> None:
        """Send a signal, if it is still the same process."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def wait(self) -> None:
        """Wait until it has ended; it need not be our child."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        try:
            loop.add_reader(handle, ended.set)
            if self.alive:  # else the pid was reused before we opened it, or it is our zombie
                await ended.wait()
        finally:
            loop.remove_reader(handle)
            os.close(handle)

    async def stop(self, grace: float) -> None:
        """Ask it to end (SIGTERM); kill it after `grace` seconds (SIGKILL)."""
        self.signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), grace)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.wait()


def start(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    log: Path,
    sockets: Mapping[int, socket.socket] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a new session, its output appended to a log file of mode 0600.

    Args:
        argv: Its command line.
        env: Its environment.
        cwd: Its working directory.
        log: The file for its output.
        sockets: Listening sockets that it inherits, by port.

    Raises:
        OSError: It cannot be started.
    """
    descriptor = _open_log(log)
    try:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=subprocess.STDOUT,
            env={**env, **lent(sockets or {})},
            cwd=cwd,
            start_new_session=True,
            pass_fds=tuple(one.fileno() for one in (sockets or {}).values()),
        )
    finally:
        os.close(descriptor)


def _open_log(log: Path) -> int:
    """Return a descriptor that appends to a log, or to the null device if the disk is too full for an empty log."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        if log.exists() and log.stat().st_size > _LOG_LIMIT:
            log.replace(log.with_suffix(".log.1"))
        return os.open(log, flags, 0o600)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return os.open(os.devnull, flags)


def identify(pid: int) -> Running | None:
    """Return the handle of a process that runs now, or None."""
    found = read_process(pid)
    return Running(pid, found.start_time, time.time()) if found is not None and found.alive else None


def tail(path: Path, lines: int = 20) -> list[str]:
    """Return the last lines of a log file, none if there is no file."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            size = file.tell()
            file.seek(max(0, size - 64 * 1024))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]
