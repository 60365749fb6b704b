"""The hang watchdog of the launcher: it ends an attempt whose ranks wait for one that hangs, and names that rank.

Each rank that has called `core.init()` writes its state to a small file (`detlab.core.distributed.heartbeat`). The
activity of a rank that is not in an operation with the others is read from /proc: one that computes, reads or writes is
working, however long its step or its validation lasts. A training loop (`detlab.pytorch`) also tells its progress and
its own limit: its ranks are judged by that, whether they compute or not. In a trial over several nodes each launcher
watches its own ranks, and receives the states of the others (`detlab.launch.ranks.watchdog_nodes`).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from detlab.launch.host import procfs
from detlab.launch.ranks.judging import HangVerdict, Sign, judge, judge_loops
from detlab.launch.taskdir import TaskDir

HUNG = 75
"""Exit code of an attempt that was ended because a rank hangs: `EX_TEMPFAIL`, worth another try."""
DEFAULT_LIMIT = 1800.0
BUSY_FACTOR = 4.0
"""How many times as long a rank may stay away that computes, reads or writes, where a user has set the limit: it may be
in an endless loop. By default there is no limit: a wrong end costs more than slots."""
_ASLEEP = 60.0
"""Seconds between two polls from which on the whole task was frozen, or the machine suspended."""
_LONGEST_INTERVAL = 5.0
_BUSY = 0.02
"""Share of a processor from which on a rank, with all its processes, is at work."""
_LEAST_TICKS = 0.05
"""Seconds of the processor below which nothing is said: the kernel counts in hundredths."""
_TRAFFIC = 64 * 1024
"""Bytes a second that a rank reads or writes from which on it is at work."""
_PULSE_BYTES = 4096
_LOCAL_POLLS = 4.0


def limit_of(value: str | None) -> float | None:
    """Return the limit in seconds that a variable sets, None for no watch; anything but a number counts as unset."""
    try:
        limit = DEFAULT_LIMIT if value is None else float(value)
    except ValueError:
        return DEFAULT_LIMIT
    if math.isnan(limit):
        return DEFAULT_LIMIT
    return limit if 0 < limit < math.inf else None


@dataclass
class _Seen:
    """State of a rank that the launcher keeps between two polls."""

    beat: int
    updated: float
    mark: float
    """When it was last seen at work."""
    used: float
    moved: float


class WatchedRanks(Protocol):
    """The ranks of the trial's other nodes."""

    node: str
    """The name of ours."""
    interval: float
    """Seconds between two exchanges."""

    def exchange(self, own: Iterable[Sign]) -> Mapping[int, Sign]:
        """Send the state of our ranks; return that of the other nodes' ranks."""

    def use_limit(self, limit: float) -> None:
        """Exchange as often as a limit needs, in seconds."""


class HangWatch:
    """Watch the ranks of one task until it is closed.

    Args:
        task: The task's directory.
        limit: Seconds after which a rank that does not arrive counts as hanging; infinite to watch training loops
            alone, which have limits of their own.
        hung: Called once, from a thread, with what was found.
        busy: Seconds that a rank at work may stay away; by default without a limit.
        clock: Monotonic, in seconds.
        others: The ranks on other nodes, of a trial over several.
    """

    def __init__(
        self,
        task: TaskDir,
        limit: float,
        hung: Callable[[HangVerdict], None],
        busy: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        others: WatchedRanks | None = None,
    ) -> None:
        self._spool = task.spool
        self._limit = self._limit_outside = limit
        self._hung = hung
        self._busy = busy
        self._clock = clock
        self._interval = _interval(limit)
        self._closing = threading.Event()
        self._seen: dict[int, _Seen] = {}
        self._looked = clock()
        self._judges_from = -math.inf
        self._others = others
        self._remote: Mapping[int, Sign] = {}
        self._asked = -math.inf
        self._suspected: tuple[tuple[int, str, str], float] | None = None
        """A rank of another node that hangs, where it does, and since when it has been named at each look."""

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="detlab-hang-watch", daemon=True).start()

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            verdict = self.look()
            if verdict is not None and not self._closing.is_set():
                self._hung(verdict)
                return

    def look(self) -> HangVerdict | None:
        """Look at all ranks once."""
        pulses = [pulse for path in self._spool.glob("pulse.*") if (pulse := _read_pulse(path)) is not None]
        now = self._clock()
        self._awake(now)
        waited = any(pulse["state"] == "inside" and pulse["since"] >= 2 * self._interval for pulse in pulses)
        waited = waited or any(s.state == "inside" and s.since >= 2 * self._interval for s in self._remote.values())
        signs = {int(pulse["rank"]): self._sign(pulse, now, waited) for pulse in pulses}
        self._seen = {rank: seen for rank, seen in self._seen.items() if rank in signs}
        if self._others is not None and now - self._asked >= self._others.interval:
            self._asked = now
            self._remote = self._others.exchange(signs.values() if now >= self._judges_from else ())
            self._awake(self._clock())  # a master that lets us wait as long cannot be told from a sleep of ours
        settled = now >= self._judges_from
        # Without a rank of ours it is not known how many there are: ours may be at work, and the others wait for it.
        size = max((int(pulse["size"]) for pulse in pulses), default=0)
        verdict = self._judge({**self._remote, **signs}, size) if pulses else None
        if not settled:
            verdict = None
        if verdict is None or verdict.sign.rank in signs:
            self._suspected = None
            return verdict
        return self._after_its_own(verdict, now)

    def _judge(self, signs: Mapping[int, Sign], size: int) -> HangVerdict | None:
        """Judge ranks by their training loops if they are in one, else by who waits for whom."""
        loops = {rank: sign for rank, sign in signs.items() if sign.phase}
        limit = min((sign.limit for sign in loops.values()), default=self._limit_outside)
        if limit != self._limit:
            self._limit, self._interval = limit, _interval(limit)
            if self._others is not None:
                self._others.use_limit(limit)
        if loops:
            return judge_loops(loops, limit) if len(loops) == size else None
        return judge(signs, size, limit, self._busy)

    def _awake(self, now: float) -> None:
        """Start over after a time in which the whole task was frozen.

        No rank has waited for another in that time, although clocks continued.
        """
        if now - self._looked > max(3 * self._interval, min(_ASLEEP, self._limit / 2)):
            self._seen.clear()
            self._judges_from = now + min(self._limit, DEFAULT_LIMIT)
        self._looked = now

    def _after_its_own(self, verdict: HangVerdict, now: float) -> HangVerdict | None:
        """Leave a rank of another node to the watch there, which has it print its stacks, for a few looks.

        It must be named in the same place at each of them: what is known of it may be older than its next step, but
        not as old as all of them.
        """
        assert self._others is not None
        place = verdict.sign.rank, verdict.sign.state, verdict.sign.operation
        if self._suspected is None or self._suspected[0] != place:
            self._suspected = place, now
        return verdict if now - self._suspected[1] >= _LOCAL_POLLS * self._others.interval else None

    def _sign(self, pulse: Mapping[str, Any], now: float, waited: bool) -> Sign:
        rank, pid, beat = int(pulse["rank"]), int(pulse["pid"]), int(pulse["beat"])
        # To look at all processes of the machine is work: while nobody waits for a rank, it counts as at work.
        used, moved = _work_of(pid) if waited else (math.inf, math.inf)
        seen = self._seen.get(rank)
        if seen is None or beat < seen.beat:
            seen = self._seen[rank] = _Seen(beat, now, now, used, moved)
        if beat != seen.beat:
            seen.beat, seen.updated = beat, now
        span = now - seen.mark
        # Less than before: one of its processes has ended, so that they are counted anew.
        seen.used, seen.moved = min(used, seen.used), min(moved, seen.moved)
        if (
            not waited
            or used - seen.used >= max(_LEAST_TICKS, _BUSY * span)
            or moved - seen.moved >= _TRAFFIC * max(1.0, span)
        ):
            seen.mark, seen.used, seen.moved = now, used, moved
        return Sign(
            rank=rank,
            state=str(pulse["state"]),
            since=float(pulse["since"]),
            still=now - seen.mark,
            silent=now - seen.updated,
            operation=str(pulse["operation"]),
            where=None if pulse["where"] is None else str(pulse["where"]),
            host=str(pulse["host"]),
            pid=pid,
            node="" if self._others is None else self._others.node,
            phase=str(pulse.get("phase", "")),
            batch=int(pulse.get("batch", 0)),
            idle=float(pulse.get("idle", 0.0)),
            limit=float(pulse.get("limit", 0.0)),
        )


def _interval(limit: float) -> float:
    """Return the seconds between two polls for a limit."""
    return max(0.05, min(_LONGEST_INTERVAL, limit / 10))


def _read_pulse(path: Path) -> dict[str, Any] | None:
    """Return a rank's last heartbeat; None for a file that is being written, or that is not ours."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            value = json.loads(os.read(descriptor, _PULSE_BYTES))
        finally:
            os.close(descriptor)
        numbers = [value[name] for name in ("rank", "size", "pid", "beat", "since")]
        texts = [value[name] for name in ("state", "operation", "host")]
        if "phase" in value:  # it is in a training loop
            numbers += [value[name] for name in ("batch", "idle", "limit")]
            texts.append(value["phase"])
        good = all(isinstance(n, int | float) and 0 <= n < 2**53 for n in numbers)
        good = good and all(isinstance(text, str) for text in texts)
        return value if good and isinstance(value["where"], str | None) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _work_of(root: int) -> tuple[float, float]:
    """Return the processor's seconds that a process and its descendants have used, and the bytes that they moved."""
    used, moved = 0.0, 0
    for pid in (root, *(process.pid for process in procfs.descendants(root))):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (procfs.PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
            lines = (procfs.PROC / str(pid) / "io").read_bytes().splitlines()
            moved += sum(int(line.split()[1]) for line in lines if line.startswith((b"rchar", b"wchar")))
    return used, moved
