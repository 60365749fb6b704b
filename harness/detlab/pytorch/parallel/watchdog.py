"""The hang watchdog of the trainer: ranks wait for each other for ever when one of them hangs.

Each rank's loop records its position in its `Pulse`; a thread beside it reports that to the chief. When no rank makes
progress for too long, the chief names the rank that the others wait for, every rank prints that, and the attempt ends
with `HUNG`, so that the trial restarts from its last checkpoint. A chief that does not answer is named by the others.

The messages go over links of their own (`core._channel`): authenticated, with a limit of time on each. A store of torch
would neither hold its limits when its host is stopped nor leave the log clean when a rank dies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from detlab.core import DistributedContext
from detlab.core.distributed.channel import DistributedError, Link, accept_all, connect_to, derive_key, listen
from detlab.errors import InvalidHP
from detlab.info import TASK_DIR_VARIABLE

HUNG = 75
"""Exit status of a rank whose watchdog ended the attempt: `EX_TEMPFAIL`, worth another try."""

LONGEST_INTERVAL = 5.0
"""Seconds between two polls; a tenth of the timeout when that is shorter."""

_MEET_SECONDS = 60.0
_PHASES = ("start", "data", "train_batch", "backward", "step", "sync", "callback", "validation", "checkpoint", "end")
_USERS = frozenset({"data", "train_batch", "callback", "validation", "checkpoint"})
"""Phases in which the trial's own code runs."""
_DOING = {
    "start": "at the start of training",
    "data": "in the data loader, which was to give batch {batch}",
    "train_batch": "in train_batch, at batch {batch}",
    "backward": "in or after backward(), at batch {batch}",
    "step": "in or after step_optimizer(), at batch {batch}",
    "sync": "between batches, after batch {batch}",
    "callback": "in a callback, at batch {batch}",
    "validation": "in a validation, after batch {batch}",
    "checkpoint": "at a checkpoint, after batch {batch}",
    "end": "at the end of training",
}
_WAITS_IN = (
    "detlab.core.distributed.channel",
    "torch.distributed",
    "torch.autograd.graph",
    "torch.nn.parallel.distributed",
)
"""Modules in whose code a rank stands while it waits for others."""
_INNERMOST = 2
_LOST = ("gloo", "nccl", "closed by peer", "reset by peer")
"""Words of the errors that the ranks get whose connection to another one breaks."""
_NOT_USERS = ("/site-packages/", "/dist-packages/", "/lib/python")
_LONGEST_WAIT = 30 * 86400.0
"""What a socket waits at most, in seconds: it takes no infinite number."""
_CHIEFS_PATIENCE = 5.0


class Pulse:
    """Where a rank is; written by its loop, read by its watchdog.

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
        """Say that this rank is well, although it only waits: for the master's return, or for room on a disk."""
        self.part += 1


@dataclasses.dataclass(frozen=True)
class Sign:
    """What one rank says about itself.

    Attributes:
        batch: As in its pulse.
        phase: As in its pulse.
        still: Seconds since it got any further.
        where: The innermost line of the trial's own code, if that is known.
        waits: Whether its main thread stands in code that waits for other ranks.
        host: Its machine.
        pid: Its process.
        silent: Seconds since it last said anything; 0 from itself.
    """

    batch: int
    phase: str
    still: float
    where: str | None
    waits: bool
    host: str
    pid: int
    silent: float = 0.0

    @property
    def position(self) -> tuple[int, int]:
        """How far the rank is; to be compared."""
        return self.batch, _PHASES.index(self.phase) if self.phase in _PHASES else 0

    def aged(self, seconds: float) -> Sign:
        """Return the sign as it counts when nothing newer came for some seconds."""
        return dataclasses.replace(self, still=self.still + seconds, silent=seconds)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The rank that hangs.

    Attributes:
        rank: It.
        sign: What it last said.
        silent: Whether its process says nothing any more.
    """

    rank: int
    sign: Sign
    silent: bool

    def line(self, limit: float) -> str:
        """Return the message for people, in one line."""
        sign = self.sign
        place = _DOING.get(sign.phase, sign.phase).format(batch=sign.batch)
        where = f" ({sign.where})" if sign.where else ""
        if self.silent:
            what = f"hangs: its process has been stopped or blocked for {sign.silent:.1f} s; it was last {place}{where}"
        else:
            what = f"hangs: for {sign.still:.1f} s it has been {place}{where}, while the others wait for it"
        return (
            f"detlab: rank {self.rank} (host {sign.host}, pid {sign.pid}) {what}. This attempt ends now, and the trial "
            f"restarts from its last checkpoint. If the work is only slow, raise the limit of {limit:g} s: "
            "pytorch.init(hang_timeout=…)"
        )


def judge(signs: dict[int, Sign], timeout: float) -> Verdict | None:
    """Return which rank hangs, None while any of them gets further. Pure.

    A process that says nothing comes first, then one in the trial's own code, then one that at least waits for nobody,
    then the one that is furthest behind.

    Args:
        signs: By rank, what is known of the ranks that still train.
        timeout: Seconds without progress that count as a hang.
    """
    silent = [rank for rank, sign in signs.items() if sign.silent >= timeout]
    if not silent and (not signs or min(sign.still for sign in signs.values()) < timeout):
        return None

    def blame(rank: int) -> tuple[int, tuple[int, int], int]:
        sign = signs[rank]
        if sign.silent >= timeout / 2:
            degree = 0
        elif sign.waits:
            degree = 3
        else:
            degree = 1 if sign.phase in _USERS else 2
        return degree, sign.position, rank

    guilty = min(signs, key=blame)
    return Verdict(guilty, signs[guilty], silent=signs[guilty].silent >= timeout / 2)


class Watchdog:
    """Watches that the ranks get further.

    Args:
        pulse: This rank's.
        distributed: The ranks; all of them start and close their watchdogs.
        timeout: Seconds without progress that count as a hang.
    """

    def __init__(self, pulse: Pulse, distributed: DistributedContext, timeout: float) -> None:
        self._pulse = pulse
        self._distributed = distributed
        self._rank = distributed.rank
        self._timeout = timeout
        self._interval = max(0.05, min(LONGEST_INTERVAL, timeout / 10))
        self._trainer = threading.get_ident()
        self._closing = threading.Event()
        self._waker: tuple[socket.socket, socket.socket] | None = None
        """Ends the chief's wait for messages: closing the first end makes the second one readable."""
        self._thread: threading.Thread | None = None
        self._links: dict[int, Link] = {}
        self._signs: dict[int, tuple[float, Sign]] = {}
        """By rank, what the others said last (for all but the chief: what the chief said), and when."""
        self._last: tuple[int, str, int] | None = None
        self._changed = time.monotonic()

    def start(self) -> None:
        """Connect the watchdogs and begin; all ranks call it together. With one rank there is nothing to do.

        Raises:
            DistributedError: A rank is missing.
        """
        if self._distributed.size < 2:
            return
        self._trainer = threading.get_ident()
        self._connect()
        self._introduce()
        if self._rank == 0:
            self._waker = socket.socketpair()
        target = self._lead if self._rank == 0 else self._follow
        self._thread = threading.Thread(target=target, name="detlab-watchdog", daemon=True)
        self._thread.start()

    def close(self, error: BaseException | None = None) -> None:
        """Stop watching.

        Args:
            error: What this rank ends with; that it failed is noted first.
        """
        if self._thread is None:
            return
        if is_own_failure(error):
            note_failing_rank(self._rank, 1)
        self._closing.set()
        if self._waker is not None:
            self._waker[0].close()
        self._thread.join(2 * self._interval)
        self._thread = None

    # --- meeting

    def _connect(self) -> None:
        distributed = self._distributed
        one_node = distributed.local_size == distributed.size
        host = "127.0.0.1" if one_node else os.environ.get("DET_CHIEF_IP") or os.environ.get("MASTER_ADDR", "")
        secret = secrets.token_bytes(32)
        if self._rank == 0:
            with contextlib.closing(listen(host, 0, distributed.size)) as listener:
                distributed.broadcast((secret, listener.getsockname()[1]))
                self._links = accept_all(listener, derive_key(secret), distributed.size, _MEET_SECONDS)
        else:
            secret, port = distributed.broadcast(None)
            key = derive_key(secret)
            self._links = {0: connect_to(lambda: (host, port), key, self._rank, distributed.size, _MEET_SECONDS)}

    def _introduce(self) -> None:
        """Exchange first signs, so that a rank that never comes to say another one is known too."""
        # A chief that does not answer for the whole timeout hangs; it waits for nobody in the middle of a message.
        patience = _CHIEFS_PATIENCE if self._rank == 0 else min(self._timeout + self._interval, _LONGEST_WAIT)
        for rank, link in self._links.items():
            link.sock.settimeout(_MEET_SECONDS)
            link.send("pulse", self._sign())
            self._signs[rank] = time.monotonic(), link.receive("pulse")
            link.sock.settimeout(patience)

    # --- the chief

    def _lead(self) -> None:
        """Collect signs and answer each with the verdict, if there is one."""
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
            assert self._waker is not None
            stack.callback(self._waker[1].close)
            selector.register(self._waker[1], selectors.EVENT_READ)
            for link in self._links.values():
                stack.callback(link.close)
                selector.register(link.sock, selectors.EVENT_READ, link)
            while not self._closing.is_set():
                self._serve(selector, None)
                now = time.monotonic()
                known = {rank: sign.aged(now - received) for rank, (received, sign) in self._signs.items()}
                verdict = judge({0: self._sign(), **known}, self._timeout)
                if verdict is not None:
                    self._announce(verdict)
                    while time.monotonic() < now + 2 * self._interval:  # until all have asked
                        self._serve(selector, verdict)
                    _leave()

    def _serve(self, selector: selectors.BaseSelector, verdict: Verdict | None) -> None:
        """Answer the ranks for one interval: with the verdict, or with where the chief is."""
        until = time.monotonic() + self._interval
        while (left := until - time.monotonic()) > 0 and not self._closing.is_set():
            for item, _ in selector.select(left):
                link: Link | None = item.data
                if link is None:  # woken: it is over
                    return
                try:
                    sign = link.receive("pulse")
                    if sign is not None:
                        self._signs[link.peer] = time.monotonic(), sign
                        link.send("pulse", verdict or self._sign())
                        continue
                    del self._signs[link.peer]  # it has finished
                except DistributedError:
                    pass  # it has died: its last sign grows old, unless the launcher is faster
                selector.unregister(link.sock)

    # --- the others

    def _follow(self) -> None:
        """Tell the chief where this rank is until it names one that hangs, ends, or does not answer."""
        link = self._links[0]
        with contextlib.closing(link):
            while not self._closing.wait(self._interval):
                try:
                    link.send("pulse", self._sign())
                    answer = link.receive("pulse")
                except DistributedError as error:
                    if self._closing.is_set() or not isinstance(error.__cause__, TimeoutError):
                        return  # the chief has finished, or has died, which the launcher sees
                    received, chief = self._signs[0]
                    answer = Verdict(0, chief.aged(time.monotonic() - received), silent=True)
                if isinstance(answer, Verdict):
                    self._announce(answer)
                    self._closing.wait(self._interval)
                    _leave()
                self._signs[0] = time.monotonic(), answer
            with contextlib.suppress(DistributedError):
                link.send("pulse", None)

    # --- this rank

    def _sign(self) -> Sign:
        pulse, now = self._pulse, time.monotonic()
        seen = pulse.batch, pulse.phase, pulse.part
        if seen != self._last:
            self._last, self._changed = seen, now
        where, waits = whereabouts(sys._current_frames().get(self._trainer))
        return Sign(seen[0], seen[1], now - self._changed, where, waits, socket.gethostname(), os.getpid())

    def _announce(self, verdict: Verdict) -> None:
        """Say it without Python's buffers, whose locks the hanging thread may hold."""
        with contextlib.suppress(OSError):
            os.write(2, f"{verdict.line(self._timeout)}\n".encode())
            if verdict.rank == self._rank:
                faulthandler.dump_traceback(file=2, all_threads=True)
        note_failing_rank(verdict.rank, HUNG)


def whereabouts(frame: FrameType | None) -> tuple[str | None, bool]:
    """Return the innermost line of a thread's own code, and whether the thread waits for other ranks.

    Args:
        frame: Innermost frame of the thread.
    """
    waits, depth = False, 0
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if depth < _INNERMOST and name.startswith(_WAITS_IN):
            waits = True
        file = frame.f_code.co_filename
        ours = name.startswith("detlab.") or file.startswith("<") or any(part in file for part in _NOT_USERS)
        if not ours:
            return f"{_short(file)}, line {frame.f_lineno}, in {frame.f_code.co_name}", waits
        frame, depth = frame.f_back, depth + 1
    return None, waits


def _short(file: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return str(Path(file).relative_to(Path.cwd()))
    return file


def is_own_failure(error: BaseException | None) -> bool:
    """Return whether a rank ends with this exception as a failure, and not for want of another one that died."""
    if isinstance(error, SystemExit):
        return error.code not in {None, 0}
    if error is None or isinstance(error, InvalidHP | GeneratorExit):
        return False
    while error is not None:
        text = str(error).lower()
        if isinstance(error, DistributedError) or any(word in text for word in _LOST):
            return False
        error = error.__cause__ or error.__context__
    return True


def note_failing_rank(rank: int, status: int) -> None:
    """Tell the launcher which rank failed: of those noted in the task's directory the first counts.

    Args:
        rank: It.
        status: Its exit status.
    """
    directory = os.environ.get(TASK_DIR_VARIABLE)
    if not directory:
        return
    line = json.dumps({"rank": rank, "exit_code": status, "time": time.time()}) + "\n"
    with contextlib.suppress(OSError), (Path(directory) / "spool" / "ranks.jsonl").open("a", encoding="utf-8") as file:
        file.write(line)


def _leave() -> NoReturn:
    """End this process, whatever its main thread does; what it has printed is kept unless it holds the lock on it."""
    flush = threading.Thread(target=_flush, daemon=True)
    flush.start()
    flush.join(1.0)
    os._exit(HUNG)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # the process ends next, whatever becomes of its last words
            stream.flush()
