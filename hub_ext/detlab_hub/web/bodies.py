"""Incoming request bodies: how much of them is buffered in memory, and how slowly they may arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from detlab_hub.services.base.threads import Tickets

BODIES_PER_USER, BODIES = 64 * 1024 * 1024, 512 * 1024 * 1024
"""Most bytes of bodies that may wait in memory, of one user and of all."""
BODY_SECONDS = 120.0
"""Seconds within which a body that is not streamed to a file must have arrived."""
MOST_READ = 256 * 1024**3
"""Bytes of a body that are read at all. What is over the limit of its route is dropped as it comes, and refused with
413: a sender whose connection is closed instead does not know why, and sends it again."""
SILENCE, SLOWEST, WINDOW = 60.0, 10_000, 120.0
"""Seconds for which an upload may pause; least bytes per second, on average over so many seconds."""


@dataclass(frozen=True)
class BodyLimits:
    """The limits of all request bodies of one master."""

    memory: Tickets = field(default_factory=lambda: Tickets("bytes of request bodies", BODIES_PER_USER, BODIES))
    seconds: float = BODY_SECONDS
    silence: float = SILENCE
    slowest: float = SLOWEST
    window: float = WINDOW


class Buffer:
    """A body that is collected in memory, and counted against its sender until `release`.

    Args:
        memory: What is counted.
        user: The sender.
    """

    def __init__(self, memory: Tickets, user: str) -> None:
        self._memory, self._user = memory, user
        self._data = bytearray()
        self._counted = 0

    def reserve(self, size: int) -> None:
        """Count a body of `size` bytes, before they arrive.

        Raises:
            Unavailable: The bodies of the sender, or of all, take as much memory as they may.
        """
        if size > self._counted:
            self._memory.take(self._user, size - self._counted)
            self._counted = size

    def add(self, chunk: bytes) -> None:
        """Keep a chunk that has arrived.

        Raises:
            Unavailable: See `reserve`.
        """
        self.reserve(len(self._data) + len(chunk))
        self._data += chunk

    @property
    def data(self) -> bytearray:
        """The bytes received so far."""
        return self._data

    def release(self) -> None:
        """Drop the bytes and stop counting them; repeated calls do nothing."""
        self._data = bytearray()
        if self._counted:
            self._memory.release(self._user, self._counted)
            self._counted = 0


class Pace:
    """Whether a sender is fast enough. Only time in which the master waits for the sender is counted.

    Args:
        limits: How slow a sender may be.
    """

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._silent = 0.0
        self._waited = 0.0
        self._came = 0

    @property
    def patience(self) -> float:
        """Seconds until the next check of the sender's pace."""
        return max(0.0, min(self._limits.silence - self._silent, self._limits.window - self._waited))

    def fault(self, seconds: float, came: int) -> str | None:
        """Count a wait and the bytes that ended it; return what is wrong with the sender, None if nothing is.

        Args:
            seconds: How long the master waited.
            came: Bytes that arrived then; 0: none, and the master still waits.
        """
        self._silent = 0.0 if came else self._silent + seconds
        self._waited += seconds
        self._came += came
        if self._silent >= self._limits.silence:
            return f"nothing came for {self._limits.silence:g} s"
        if self._waited >= self._limits.window:
            if self._came < self._limits.slowest * self._limits.window:
                return f"{self._came:,} bytes came in {self._waited:.0f} s"
            self._waited, self._came = 0.0, 0
        return None


class Sender:
    """Watches the sender of an upload while the master waits for its bytes.

    Args:
        limits: How slow it may be.
        cut: Called once, with the reason, when it is slower.
    """

    def __init__(self, limits: BodyLimits, cut: Callable[[str], None]) -> None:
        self._pace = Pace(limits)
        self._cut = cut
        self._loop = asyncio.get_running_loop()
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """Expect bytes from now on."""
        self._since = self._loop.time()
        self._timer = self._loop.call_later(self._pace.patience, self._check_pace, 0)

    def came(self, size: int) -> None:
        """Stop the clock: bytes have come, and the master is at work until it waits again."""
        if self._timer is not None:
            self.stop()
            self._check_pace(size)

    def stop(self) -> None:
        """Expect nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_pace(self, came: int) -> None:
        self._timer = None
        fault = self._pace.fault(self._loop.time() - self._since, came)
        if fault is not None:
            self._cut(fault)
        elif not came:
            self.wait()
