"""Threads for work that users cause, separate by kind, so that one kind cannot delay another.

Nothing here is used by the writer, the lease or the database's readers, which have threads of their own. Long work is
done in steps of a fraction of a second; between two steps other work runs, and work whose client has disconnected ends.
Users are the owners of tasks, too: many trials are one user. A call that takes longer than its kind allows gives its
place back and goes on beside the others; until it ends, its user has no other one of that kind.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from detlab.errors import Unavailable
from detlab_hub.services.base.callers import AgentCaller, Caller, EnrolCaller, HubCaller, TaskCaller

T = TypeVar("T")
SPARE = 16
"""Threads of a kind for calls that take too long, so that they hold up nobody."""
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
            return caller.owner or f"allocation {caller.allocation_id}"
        case AgentCaller():
            return f"agent {caller.agent_id}"
        case EnrolCaller():
            return "enrolment"
        case _:
            return ""


class FairPlaces:
    """A number of places, one for each user in turn: behind a hundred requests of one, others wait for a round.

    Args:
        count: Number of places.
        each: Places that one user may hold at a time, while others are free, too; None: all.
    """

    def __init__(self, count: int, each: int | None = None) -> None:
        self._free = count
        self._each = count if each is None else each
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By user, the one whose turn is next first."""

    @asynccontextmanager
    async def of(self, user: str) -> AsyncIterator[None]:
        """Hold a place, as soon as there is one and it is the user's turn."""
        if self._free and self._held[user] < self._each:
            self._take(user)
        else:
            await self._turn(user)
        try:
            yield
        finally:
            self._give_back(user)

    def _take(self, user: str) -> None:
        self._free -= 1
        self._held[user] += 1

    async def _turn(self, user: str) -> None:
        """Wait until a place is passed on."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._give_back(user)  # it came at the moment at which nobody wanted it any more
            raise

    def _give_back(self, user: str) -> None:
        self._free += 1
        self._held[user] -= 1
        if not self._held[user]:
            del self._held[user]
        for following in list(self._waiting):
            if self._held[following] < self._each and self._pass_on(following):
                return

    def _pass_on(self, user: str) -> bool:
        """Give the free place to the next call of a user; False: none of theirs waits any more."""
        turns = self._waiting.pop(user)
        turn = turns.popleft()
        while turn.done() and turns:
            turn = turns.popleft()
        if turns:
            self._waiting[user] = turns  # behind all others
        if turn.done():
            return False
        self._take(user)
        turn.set_result(None)
        return True


class TooSlow(Unavailable):
    """A call has taken longer than its kind of work may; it goes on, and nobody waits for it."""

    default_code = "unavailable.slow"


class Threads:
    """A number of threads for one kind of work, given to users in turn, with a bounded queue.

    Args:
        what: The work, in words for error messages.
        size: Number of threads.
        waiting: Calls that may run or wait; more are refused. One user may have a quarter of them.
        each: Threads that one user may hold at a time; None: all.
        seconds: For which a call may hold a thread; None: it is bounded by what it does.
    """

    def __init__(
        self, what: str, size: int, waiting: int, *, each: int | None = None, seconds: float | None = None
    ) -> None:
        self.what, self.size, self.waiting = what, size, waiting
        self.each, self.seconds = each or size, seconds
        self._places = FairPlaces(size, each)
        spare = SPARE if seconds else 0
        self._executor = ThreadPoolExecutor(size + spare, thread_name_prefix=f"detlab-{what.replace(' ', '-')}")
        self._calls: Counter[str] = Counter()
        self._slow: Counter[str] = Counter()
        self._closed = False

    async def run(
        self, user: str, fn: Callable[..., T], *args: Any, wanted: Callable[[], Awaitable[Any]] | None = None
    ) -> T:
        """Run a call in one of the threads, when it is the user's turn.

        A caller that is cancelled waits until a call that has begun is over, or too slow.

        Args:
            user: In whose turn it runs.
            fn: The call.
            args: Its arguments.
            wanted: Asked when its turn has come, and raises if nobody needs it any more.

        Raises:
            TooSlow: It took longer than `seconds`, or an earlier one of this user still does.
            Unavailable: Too much waits already, or the master stops.
        """
        if self._calls[user] >= max(1, self.waiting // SHARE) or self._calls.total() >= self.waiting:
            raise _full(f"{self._calls.total()} calls wait for the threads of {self.what}")
        self._calls[user] += 1
        try:
            async with self._places.of(user):
                if self._slow[user]:
                    raise self._too_slow("an earlier call of this user has not ended yet")
                if wanted is not None:
                    await wanted()
                return await self._run(user, fn, *args)
        finally:
            _less(self._calls, user)

    async def _run(self, user: str, fn: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise self._stopping()
        work = asyncio.get_running_loop().run_in_executor(self._executor, fn, *args)
        # Without a spare thread it keeps its place, or the others would have one less and not know it.
        limit = self.seconds if self._slow.total() < SPARE else None
        waiting = asyncio.ensure_future(asyncio.wait({work}, timeout=limit))
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await waiting
            raise
        finally:
            if waiting.done() and not work.done():
                self._slow[user] += 1
                work.add_done_callback(lambda ended: self._ended(user, ended))
        if not work.done():
            raise self._too_slow(f"a call took longer than {self.seconds:g} s")
        if work.cancelled():
            raise self._stopping()
        return work.result()

    def _ended(self, user: str, work: asyncio.Future[Any]) -> None:
        _less(self._slow, user)
        if not work.cancelled():
            work.exception()  # nobody asks for it any more

    def _too_slow(self, why: str) -> TooSlow:
        return TooSlow(f"{self.what}: {why}", hint="Is the storage, or a disk, away? Try again when it answers.")

    def _stopping(self) -> Unavailable:
        hint = "Try again: the next one serves in some seconds."
        return Unavailable(f"the master is stopping and starts no further work of this kind: {self.what}", hint=hint)

    def close(self) -> None:
        """Accept no further work: callers are told to try again."""
        self._closed = True
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


def _less(counts: Counter[str], user: str) -> None:
    counts[user] -= 1
    if counts[user] <= 0:
        del counts[user]


def _full(why: str) -> Unavailable:
    return Unavailable(f"the master is busy: {why}", hint="Try again in a few seconds.", code="unavailable.busy")


class KeyedLocks:
    """A lock for each object that somebody works on."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[int | str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: int | str) -> asyncio.Lock:
        """Return the lock of an object: `async with locks.of(7)`."""
        return self._locks.setdefault(key, asyncio.Lock())


@dataclass
class Workers:
    """The threads of one master that work for users, and what may be under way."""

    submissions: Threads = field(default_factory=lambda: Threads("submissions", 2, 64, each=1))
    code: Threads = field(default_factory=lambda: Threads("reading code", 1, 64))
    comparisons: Threads = field(default_factory=lambda: Threads("comparisons", 2, 64, each=1, seconds=20.0))
    downloads: Threads = field(default_factory=lambda: Threads("downloads", 4, 256, each=2, seconds=60.0))
    uploads: Threads = field(default_factory=lambda: Threads("uploads", 2, 256, each=1))
    moves: Threads = field(default_factory=lambda: Threads("moves of stored files", 1, 256))
    """For what is done while a lock is held that others wait for: never behind the other uploads of one user."""
    looks: Threads = field(default_factory=lambda: Threads("looks at checkpoints", 4, 1024, each=1, seconds=20.0))
    credentials: Threads = field(default_factory=lambda: Threads("storage credentials", 2, 256, each=1, seconds=30.0))
    names: Threads = field(default_factory=lambda: Threads("names of hosts", 4, 256, each=1, seconds=5.0))
    mails: Threads = field(default_factory=lambda: Threads("e-mail", 4, 64, each=1, seconds=60.0))
    searches: Threads = field(default_factory=lambda: Threads("searching output", 2, 64, each=1))
    policies: Threads = field(default_factory=lambda: Threads("log policies", 1, 256))
    sweeps: Threads = field(default_factory=lambda: Threads("sweeps of the master's own files", 1, 1_000_000))
    removals: Threads = field(default_factory=lambda: Threads("removals", 4, 1_000_000, each=1, seconds=60.0))
    open_downloads: Tickets = field(default_factory=lambda: Tickets("downloads", DOWNLOADS_PER_USER, DOWNLOADS))
    open_uploads: Tickets = field(default_factory=lambda: Tickets("uploads", UPLOADS_PER_USER, UPLOADS))

    def close(self) -> None:
        """End the threads."""
        for threads in vars(self).values():
            if isinstance(threads, Threads):
                threads.close()
