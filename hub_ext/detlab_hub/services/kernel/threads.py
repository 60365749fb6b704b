"""Threads for work that users cause, separate by kind, so that one kind cannot delay another.

Nothing here is used by the writer, the lease or the database's readers, which have threads of their own. Long work is
done in steps of a fraction of a second; between two steps other work runs, and work whose client has disconnected ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from detlab.errors import Unavailable
from detlab_hub.services.kernel.callers import AgentCaller, Caller, EnrolCaller, HubCaller, TaskCaller
from detlab_hub.services.kernel.fair_semaphore import FairPlaces

T = TypeVar("T")
SHARE = 4
"""The part of the waiting places that one user may take."""
DOWNLOADS_PER_USER, DOWNLOADS = 16, 128
UPLOADS_PER_USER, UPLOADS = 8, 64


def user_of(caller: Caller | TaskCaller | AgentCaller | EnrolCaller | HubCaller | None) -> str:
    """Return the user in whose turn a caller's work runs."""
    match caller:
        case Caller():
            return caller.name
        case TaskCaller():
            return f"allocation {caller.allocation_id}"
        case AgentCaller():
            return f"agent {caller.agent_id}"
        case EnrolCaller():
            return "enrolment"
        case _:
            return ""


class Threads:
    """A number of threads for one kind of work, given to users in turn, with a bounded queue.

    Args:
        what: The work, in words for error messages.
        size: Number of threads.
        waiting: Calls that may run or wait; more are refused. One user may have a quarter of them.
    """

    def __init__(self, what: str, size: int, waiting: int) -> None:
        self._what = what
        self._most = waiting
        self._places = FairPlaces(size)
        self._executor = ThreadPoolExecutor(size, thread_name_prefix=f"detlab-{what.replace(' ', '-')}")
        self._calls: Counter[str] = Counter()

    async def run(self, user: str, fn: Callable[..., T], *args: Any) -> T:
        """Run a call in one of the threads, when it is the user's turn.

        A caller that is cancelled waits until a call that has begun is over: nothing runs on behind it.

        Raises:
            Unavailable: Too much waits already.
        """
        if self._calls[user] >= max(1, self._most // SHARE) or self._calls.total() >= self._most:
            raise _full(f"{self._calls.total()} calls wait for the threads of {self._what}")
        self._calls[user] += 1
        try:
            async with self._places.of(user):
                work = asyncio.get_running_loop().run_in_executor(self._executor, fn, *args)
                try:
                    return await asyncio.shield(work)
                except asyncio.CancelledError:
                    await asyncio.wait({work})
                    raise
        finally:
            self._calls[user] -= 1
            if self._calls[user] <= 0:
                del self._calls[user]

    def close(self) -> None:
        """Accept no more work."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class Tickets:
    """A limit of concurrent long operations, for each user and for all; one more is refused, not queued.

    Args:
        what: The operation, in words for error messages.
        per_user: Most operations of one user.
        total: Most operations of all users.
    """

    def __init__(self, what: str, per_user: int, total: int) -> None:
        self._what, self._per_user, self._total = what, per_user, total
        self._held: Counter[str] = Counter()

    def held(self, user: str | None = None) -> int:
        """Return how many are under way, of one user or of all."""
        return self._held.total() if user is None else self._held[user]

    def take(self, user: str, count: int = 1) -> None:
        """Begin one operation, or `count` at once; `release` must follow.

        Raises:
            Unavailable: There would be more than the limit.
        """
        if self._held[user] + count > self._per_user:
            raise _full(f"you have {self._held[user]:,} {self._what} under way, and a user may have {self._per_user:,}")
        if self._held.total() + count > self._total:
            raise _full(f"{self._held.total():,} {self._what} are under way, and there may be {self._total:,}")
        self._held[user] += count

    def release(self, user: str, count: int = 1) -> None:
        """End one operation, or `count` at once."""
        self._held[user] -= count
        if self._held[user] <= 0:
            del self._held[user]

    @contextmanager
    def of(self, user: str) -> Iterator[None]:
        """Hold one operation for the duration of the block."""
        self.take(user)
        try:
            yield
        finally:
            self.release(user)


def _full(why: str) -> Unavailable:
    return Unavailable(f"the master is busy: {why}", hint="Try again in a few seconds.", code="unavailable.busy")


@dataclass
class Workers:
    """The threads of one master that work for users, and what may be under way."""

    submissions: Threads = field(default_factory=lambda: Threads("submissions", 2, 64))
    code: Threads = field(default_factory=lambda: Threads("reading code", 1, 64))
    downloads: Threads = field(default_factory=lambda: Threads("downloads", 4, 256))
    uploads: Threads = field(default_factory=lambda: Threads("uploads", 2, 256))
    credentials: Threads = field(default_factory=lambda: Threads("storage credentials", 2, 256))
    searches: Threads = field(default_factory=lambda: Threads("searching output", 2, 64))
    policies: Threads = field(default_factory=lambda: Threads("log policies", 1, 256))
    removals: Threads = field(default_factory=lambda: Threads("removals", 1, 1_000_000))
    open_downloads: Tickets = field(default_factory=lambda: Tickets("downloads", DOWNLOADS_PER_USER, DOWNLOADS))
    open_uploads: Tickets = field(default_factory=lambda: Tickets("uploads", UPLOADS_PER_USER, UPLOADS))

    def close(self) -> None:
        """End the threads."""
        for threads in vars(self).values():
            if isinstance(threads, Threads):
                threads.close()
