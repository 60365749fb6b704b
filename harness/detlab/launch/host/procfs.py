"""Processes as Linux's /proc shows them: identity that survives pid reuse, sessions, descendants.

A pid alone names nothing: the kernel reuses it. `(pid, start time)` does, which is why `launcher.json` holds both.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_STAT_BYTES = 4096
"""More than a line of the process table has: it comes in one piece."""
_START_CODE = 23
"""Which field of the process table, after the command, says where the program's code lies; 1 when that is secret."""
_DEAD_STATES = frozenset("ZXx")


@dataclass(frozen=True)
class Process:
    """One line of the process table. `start_time` is in clock ticks since boot."""

    pid: int
    state: str
    ppid: int
    pgid: int
    session: int
    start_time: int
    threads: int = 1

    @property
    def alive(self) -> bool:
        """Whether it still runs: a zombie has ended and only waits to be reaped.

        The state is the first thread's alone. While others run, or are not gone yet after a SIGKILL, so does the
        process: it has its files, sockets and locks.
        """
        return self.state not in _DEAD_STATES or self.threads > 1

    @property
    def headless(self) -> bool:
        """Whether its first thread has ended and others have not: by its pid, nothing of its program is shown."""
        return self.state in _DEAD_STATES and self.alive


def read_process(pid: int) -> Process | None:
    """Return the process with this pid, or None when there is none."""
    # Every process of the machine is looked at when a task ends: no path and no text object is made for it.
    try:
        descriptor = os.open(f"{PROC}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, _STAT_BYTES)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    # The command is in parentheses and may hold spaces and parentheses itself.
    fields = text[text.rindex(b")") + 2 :].split(None, 20)
    return Process(
        pid=pid,
        state=chr(fields[0][0]),
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        session=int(fields[3]),
        start_time=int(fields[19]),
        threads=int(fields[17]),
    )


def start_time(pid: int) -> int | None:
    """Return when this process started, in clock ticks since boot, or None when it does not exist."""
    process = read_process(pid)
    return process.start_time if process else None


@functools.cache
def machine_life() -> str:
    """Return what changes when this machine, or the container that we see as one, has been started again."""
    boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot}.{start_time(1)}"


def is_alive(pid: int, started: int | None) -> bool:
    """Whether the very process that started at `started` still runs (not a later one with the same pid)."""
    process = read_process(pid)
    return process is not None and process.alive and started in {None, process.start_time}


def processes() -> Iterator[Process]:
    """Yield every process that this user may see."""
    for name in os.listdir(PROC):  # noqa: PTH208  (names are all that is wanted)
        if name.isdigit():
            process = read_process(int(name))
            if process is not None:
                yield process


def read_environment(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty when it is gone or not ours to read."""
    raw = _of_program(pid, "environ")
    pairs = (item.partition(b"=") for item in raw.split(b"\0") if item)
    return {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs}


def read_command(pid: int) -> list[str]:
    """Return the argument vector of a process; empty when it is gone."""
    return [os.fsdecode(item) for item in _of_program(pid, "cmdline").split(b"\0")[:-1]]


def _of_program(pid: int, name: str) -> bytes:
    """Return a file of a process about its program; empty when it is gone, not ours to read, or the kernel's."""
    raw, place = b"", PROC / str(pid)
    with contextlib.suppress(OSError):
        raw = (place / name).read_bytes()
    if raw or (process := read_process(pid)) is None or not process.headless:
        return raw
    with contextlib.suppress(OSError):
        for thread in (place / "task").iterdir():
            with contextlib.suppress(OSError):  # this thread has ended as well
                raw = raw or (thread / name).read_bytes()
    return raw


def is_in_exec(pid: int) -> bool:
    """Whether the kernel is just putting a new program into this process: its command and environment read as empty.

    Where the program's code lies is what the kernel notes last; it is always told, if only as "not yours to know".
    """
    try:
        text = (PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return False
    fields = text[text.rindex(b")") + 2 :].split()
    return fields[_START_CODE] == b"0" and fields[0].decode() not in _DEAD_STATES


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends (prctl(2)); return whether the kernel agreed."""
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def descendants(root: int) -> list[Process]:
    """Return the living children, grandchildren, … of `root`, nearest first."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.ppid, []).append(process)
    found: list[Process] = []
    queue = [root]
    while queue:
        for child in children.get(queue.pop(0), []):
            queue.append(child.pid)
            if child.alive:
                found.append(child)
    return found


def task_processes(task_dir: Path, session: int | None, started: int | None) -> list[Process]:
    """Return every living process of a task: those of its session, and those that carry its directory.

    Args:
        task_dir: Value of DET_TASK_DIR in the environment of the task's processes.
        session: Session of the launcher (its pid), if known.
        started: Start time of the launcher; guards against a reused session number.
    """
    mark = str(task_dir)
    found = []
    for process in processes():
        if not process.alive or process.pid == os.getpid():
            continue
        ours = process.session == session and _same_session(process.session, started)
        # What is older than the launcher is not of its task: its environment need not be read.
        young = process.start_time >= (started or 0)
        if ours or (young and read_environment(process.pid).get("DET_TASK_DIR") == mark):
            found.append(process)
    return found


def _same_session(session: int, started: int | None) -> bool:
    """Whether the session number still names the session of the process that started at `started`.

    The kernel keeps a number while it names a session, so that only a living leader can contradict us.
    """
    leader = read_process(session)
    return leader is None or started is None or leader.start_time == started


def send_signal(victims: Iterable[Process], number: signal.Signals) -> int:
    """Signal each process that is still the same; return how many got it."""
    sent = 0
    for victim in victims:
        try:
            descriptor = os.pidfd_open(victim.pid)
        except OSError:
            continue  # gone
        try:
            if start_time(victim.pid) == victim.start_time:
                signal.pidfd_send_signal(descriptor, number)
                sent += 1
        except (ProcessLookupError, PermissionError):
            continue
        finally:
            os.close(descriptor)
    return sent


def real_uid(pid: int) -> int | None:
    """Return the real uid of a process, or None when it is gone."""
    try:
        text = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return None
