"""Heartbeats of a rank to the launcher, which ends an attempt whose ranks wait for one that hangs.

A thread beside the main one looks at the main thread's stack now and then, and writes what it sees to a small file of
the task's directory: whether the rank stands in an operation with the other ranks, in which, and for how long. Nothing
of torch is patched. A training loop (`detlab.pytorch`) tells more: its batch and phase, and its own limit. The judge is
`detlab.launch.ranks.watchdog`: it must live when a rank's process is stopped altogether. Without a launcher, as
off-cluster, nothing is watched.

A thread that waits for other ranks in gloo or in a socket sleeps: it uses no time of the processor. One that only calls
such operations again and again does, so that each look that finds it at work restarts its time. (A wait in NCCL
spins and is never taken for one; NCCL has a watchdog of its own.)
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from detlab.core.distributed.context import DistributedContext

LIMIT_VARIABLE = "DET_HANG_TIMEOUT"
"""Seconds; 0: nothing is watched. The launcher sets it in every task of several ranks."""
_LONGEST_INTERVAL = 5.0
_BYTES = 4096
_AWAKE = 200e-6
"""Seconds of the processor between two looks from which on the main thread has not slept through."""
_WAITS_IN = (
    "torch.distributed",
    "torch.nn.parallel.distributed",
    "torch.autograd.graph",
    "detlab.core.distributed.context",
)
_LOOP_WAITS_IN = (
    "detlab.core.distributed.channel",
    "torch.distributed",
    "torch.autograd.graph",
    "torch.nn.parallel.distributed",
)
"""Modules in whose code a training loop stands while it waits for other ranks: what they call may hang by itself."""
_INNERMOST = 2
_AT_WORK = ("torch.distributed.checkpoint", "torch.distributed.rpc", "torch.distributed.elastic")
"""Of those, what does work of its own while the main thread waits for it: never judged."""
_NOT_ITS_NAME = ("wrapper", "<lambda>")
"""What torch's decorators call every operation."""
_NOT_USERS = ("/site-packages/", "/dist-packages/", "/lib/python")


_LONGEST_LIMIT = 30 * 86400.0
"""Seconds; an infinite limit is a way to say never, and JSON has no infinite number."""


class LoopState:
    """Where a training loop is; written by the loop, sent with each heartbeat.

    Attributes:
        batch: Batches completed.
        phase: What it does now, one of `start`, `data`, `train_batch`, `backward`, `step`, `sync`, `callback`,
            `validation`, `checkpoint`, `end`.
        part: Counts what a long phase has done so far, such as batches of a validation.
    """

    __slots__ = ("batch", "part", "phase")

    def __init__(self) -> None:
        self.batch = 0
        self.phase = "start"
        self.part = 0

    def beat(self) -> None:
        """Report that this rank is healthy although it only waits: for the master's return, or for room on a disk."""
        self.part += 1


@dataclass(frozen=True, slots=True)
class MainThreadPlace:
    """Where a main thread stands.

    Attributes:
        state: `inside` an operation with other ranks; in code of `detlab`, which may wait for the master or for room
            on a disk; else with the `user`.
        operation: Name of the operation, if inside one.
        where: The innermost line of the user's own code.
        key: The same as long as the thread has not moved on from the call that it stands in.
    """

    state: Literal["inside", "detlab", "user"]
    operation: str = ""
    where: str | None = None
    key: object = None


def place_of(frame: FrameType | None) -> MainThreadPlace:
    """Return where a thread stands.

    Args:
        frame: Innermost frame of the thread.
    """
    operation, ours, key = "", False, 0
    for found in _outwards(frame):
        name = str(found.f_globals.get("__name__", ""))
        if name.startswith(_AT_WORK):
            ours = True
        elif name.startswith(_WAITS_IN):
            if found.f_code.co_name not in _NOT_ITS_NAME:
                operation = found.f_code.co_name
            key = found.f_lasti
        elif name.startswith("detlab."):
            ours = True
        elif not _is_library(name, found.f_code.co_filename):
            where = f"{_short(found.f_code.co_filename)}, line {found.f_lineno}, in {found.f_code.co_name}"
            return _place(operation, where, (operation, where, key, found.f_lasti), ours=ours)
    return _place(operation, None, (operation, key), ours=ours)


def waits_for_others(frame: FrameType | None) -> bool:
    """Return whether a training loop waits for other ranks: its innermost frames are those of an operation.

    Args:
        frame: Innermost frame of the loop's thread.
    """
    names = (str(found.f_globals.get("__name__", "")) for found in itertools.islice(_outwards(frame), _INNERMOST))
    return any(name.startswith(_LOOP_WAITS_IN) for name in names)


def _place(operation: str, where: str | None, key: object, *, ours: bool) -> MainThreadPlace:
    if operation:
        return MainThreadPlace("inside", operation, where, key)
    return MainThreadPlace("detlab" if ours else "user", "", where, "detlab" if ours else "user")


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_library(name: str, file: str) -> bool:
    return name.startswith("importlib") or file.startswith("<frozen") or any(part in file for part in _NOT_USERS)


def _short(file: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return str(Path(file).relative_to(Path.cwd()))
    return file


class Pulse:
    """Tells the launcher where this rank is, until it is closed.

    Args:
        task_dir: The task's directory.
        rank: This process's.
        size: How many ranks the trial has, on all of its nodes.
        limit: Seconds after which a rank that does not arrive counts as hanging.
        loop: The training loop of the calling thread, for which the limit is on the time without progress; None to
            report on the main thread alone.
    """

    def __init__(self, task_dir: Path, rank: int, size: int, limit: float, loop: LoopState | None = None) -> None:
        self._path = task_dir / "spool" / f"pulse.{rank}"
        self._rank = rank
        self._size = size
        self._interval = max(0.05, min(_LONGEST_INTERVAL, limit / 10))
        self._main = (threading.main_thread().ident or 0) if loop is None else threading.get_ident()
        self._limit = min(limit, _LONGEST_LIMIT)
        self._loop = loop
        self._loop_seen: tuple[int, str, int] | None = None
        self._progressed = time.monotonic()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._beats = 0
        self._place = MainThreadPlace("user")
        self._changed = time.monotonic()
        self._used = 0.0

    @classmethod
    def for_rank(cls, task_dir: Path, distributed: DistributedContext) -> Pulse | None:
        """Return the pulse of this rank, None where no launcher watches it."""
        try:
            limit = float(os.environ.get(LIMIT_VARIABLE) or 0)
        except ValueError:
            return None
        if distributed.size < 2 or not limit > 0:
            return None
        return cls(task_dir, distributed.rank, distributed.size, limit)

    def start(self) -> None:
        """Start the heartbeats; if the directory cannot be written to, the trial goes unwatched but does not fail."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return
        self._thread = threading.Thread(target=self._run, args=(descriptor,), name="detlab-pulse", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and tell the launcher to watch this rank no longer. Harmless when repeated."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(2 * self._interval)
            self._thread = None
            self._path.unlink(missing_ok=True)

    def _run(self, descriptor: int) -> None:
        try:
            while True:
                # In place: on a full disk a new file could not be written, and silence would look like a hang.
                with contextlib.suppress(OSError):
                    os.pwrite(descriptor, self._look(), 0)
                if self._closing.wait(self._interval):
                    return
        finally:
            os.close(descriptor)

    def _look(self) -> bytes:
        now, used = time.monotonic(), self._main_time()
        frame = sys._current_frames().get(self._main)
        place = place_of(frame)
        asleep = used - self._used < _AWAKE
        if place.key != self._place.key or (place.state == "inside" and not asleep):
            self._changed = now
        self._place, self._used = place, used
        self._beats += 1
        told = {
            "rank": self._rank,
            "size": self._size,
            "pid": os.getpid(),
            "host": socket.gethostname()[:200],
            "beat": self._beats,
            "state": place.state,
            "operation": place.operation[:100],
            "since": now - self._changed,
            "where": None if place.where is None else place.where[-300:],
        }
        if self._loop is not None:
            told |= self._loop_told(self._loop, now) | {"state": "inside" if waits_for_others(frame) else "user"}
        return json.dumps(told).encode()[: _BYTES - 1].ljust(_BYTES - 1) + b"\n"

    def _loop_told(self, loop: LoopState, now: float) -> dict[str, object]:
        seen = loop.batch, loop.phase, loop.part
        if seen != self._loop_seen:
            self._loop_seen, self._progressed = seen, now
        return {"phase": seen[1], "batch": seen[0], "idle": now - self._progressed, "limit": self._limit}

    def _main_time(self) -> float:
        """Seconds of the processor that the main thread has used."""
        try:
            return time.clock_gettime(time.pthread_getcpuclockid(self._main))
        except OSError:  # it has ended
            return 0.0
