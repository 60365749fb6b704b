"""The shared parts of all services: the store, the clock, the searches, the agents, and the way to make a change.

`ServiceContext.write` is the one door for changes: it runs a function of a `UnitOfWork` in one transaction, and after
the commit sends what that collected. The database is the truth; whatever is sent can be derived from it again.

A `Service` has the use cases of one subject. It is found by its class, and made when it is first asked for.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from sqlalchemy.orm import Session

from detlab.errors import DetlabError
from detlab.schemas.wire import LogLine, ProblemView
from detlab_hub.backends.base import Backend
from detlab_hub.core.scheduling.gpu_activity import GpuActivity
from detlab_hub.core.searchers import PointsAhead, Question
from detlab_hub.services.base.agent_kinds import PoolAgents
from detlab_hub.services.base.limits.limiter import Limiter
from detlab_hub.services.base.limits.metric_names import MetricNames
from detlab_hub.services.base.pending import PendingReasons, Saving
from detlab_hub.services.base.searches import Searches
from detlab_hub.services.base.settings import A_COPY, Settings
from detlab_hub.services.base.threads import FairPlaces, KeyedLocks, Workers
from detlab_hub.services.base.token_cache import KnownTasks
from detlab_hub.services.base.unit_of_work import Outbox, StateMachines, UnitOfWork
from detlab_hub.services.base.wakeups import Wakeups
from detlab_hub.store import Clock, Store
from detlab_hub.store.queries.logs import lines as logs

T = TypeVar("T")
_log = logging.getLogger(__name__)
STREAM_PERIOD = 0.1
"""Least seconds between two batches of one stream."""
LINES_PER_BATCH = 500
CHARS_PER_BATCH = 100_000
"""Text of the lines that a stream of output reads at a time."""
CATCHING_UP = 2
"""Streams that read what they have missed at a time, fewer than the database has readers."""
LISTING = 2
"""Lists that are made at a time, by users in turn, fewer than the database has readers."""
SEARCHES = 2
"""Concurrent searches of output, fewer than the database has readers: further searches wait, other reads do not."""


@dataclass
class ServiceContext:
    """Shared by the services of one master."""

    store: Store
    settings: Settings
    clock: Clock
    backend: Backend
    lifecycle: StateMachines
    searches: Searches = field(default_factory=Searches)
    wakeups: Wakeups = field(default_factory=Wakeups)
    known_tasks: KnownTasks = field(default_factory=KnownTasks)
    present: PoolAgents = field(default_factory=PoolAgents)
    """The agents of each pool, for checks of a task alone."""
    scheduler_kick: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a task may be placed now, or is newly pending."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Tasks have ended since the last pass: the next one must not be delayed."""
    pending_reasons: PendingReasons = field(default_factory=PendingReasons)
    """Why each allocation that has no place waits, and its place in its pool; replaced as a whole by the scheduler."""
    pending_codes: dict[str, str] = field(default_factory=dict)
    """The same as a code of `core.scheduling.ReasonCode`."""
    gpus: GpuActivity = field(default_factory=GpuActivity)
    """What agents have measured of their GPUs since the start."""
    saving: Saving = field(default_factory=dict)
    """Allocations that the last pass chose to leave, and held back until a checkpoint that is near."""
    refusals: dict[tuple[int | str, str], float] = field(default_factory=dict)
    """(trial or user task, agent that refused it) -> until when it is not asked again."""
    questions: deque[tuple[int, str, Question]] = field(default_factory=deque)
    """Unanswered questions of searches, see `Outbox.questions`."""
    question_kick: asyncio.Event = field(default_factory=asyncio.Event)
    ahead: deque[tuple[str, PointsAhead]] = field(default_factory=deque)
    """Points to be drawn before they are needed, see `Outbox.ahead`."""
    ahead_kick: asyncio.Event = field(default_factory=asyncio.Event)
    spawn_secrets: dict[str, dict[str, str]] = field(default_factory=dict)
    """Environments of the Hub's servers that are being started, by task; they hold tokens and are never stored."""
    grants: int = 0
    """How often grants were changed since the start: what a stream knows of rights is of one such number."""
    searching: FairPlaces = field(default_factory=lambda: FairPlaces(SEARCHES))
    """Places of filters of output."""
    listing: FairPlaces = field(default_factory=lambda: FairPlaces(LISTING))
    """Places of lists, each of which may read megabytes."""
    catching_up: FairPlaces = field(default_factory=lambda: FairPlaces(CATCHING_UP))
    """Places of streams that read what they have missed, slice by slice."""
    workers: Workers = field(default_factory=Workers)
    """Threads for what users cause beside the database."""
    artifact_locks: KeyedLocks = field(default_factory=KeyedLocks)
    """Of each artifact: storing its files, making a version of them and removing unused ones must not interleave."""
    draining: bool = False
    stopped: bool = False
    started_at: float = 0.0
    metric_names: MetricNames = field(default_factory=MetricNames)
    """The metric names of recently reporting trials."""
    limiter: Limiter = field(init=False)
    """The recent requests of each user."""
    _writes: set[asyncio.Task[object]] = field(default_factory=set)

    @property
    def halted(self) -> str:
        """Why nothing starts, for people; empty: it does."""
        if self.draining:
            return "the cluster is draining: nothing new starts until it is restarted"
        return A_COPY if self.settings.is_copy else ""

    @property
    def halted_warnings(self) -> list[ProblemView]:
        """What a submission is told beside its success, if nothing starts."""
        return [ProblemView(path="", message=f"it waits: {self.halted}", level="warning")] if self.halted else []

    def __post_init__(self) -> None:
        self.limiter = Limiter(self.settings.limits, self.clock)

    def rights_changed(self) -> None:
        """Have open streams look again at who may read what: call it after the commit, so that they see the change."""
        self.grants += 1
        self.wakeups.wake("streams")
        self.wakeups.wake_kind("logs")

    async def write(self, fn: Callable[[UnitOfWork], T]) -> T:
        """Run `fn` in one transaction and then carry out its outbox.

        A caller that is cancelled does not interrupt it: either nothing happens, or everything.

        Raises:
            Unavailable: The database is busy or broken; nothing was changed, or it is not known whether anything was.
        """
        task: asyncio.Task[T] = asyncio.ensure_future(self._write(fn))
        self._writes.add(task)
        task.add_done_callback(self._writes.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_note_failure)
            raise

    async def _write(self, fn: Callable[[UnitOfWork], T]) -> T:
        outboxes: list[Outbox] = []

        def run(session: Session) -> T:
            self.searches.begin()
            unit = UnitOfWork(
                session,
                self.clock(),
                self.settings,
                self.searches,
                self.lifecycle,
                spawn_secrets=self.spawn_secrets,
                metric_names=self.metric_names,
                asks_point=self.backend.asks_point,
            )
            try:
                result = fn(unit)
                self.lifecycle.finish(unit)
            except BaseException:
                # The searches have moved on, the database has not. Where it is the commit that fails, or another write
                # of the same commit, the number of their journal entry tells.
                self.searches.undo()
                raise
            outboxes.append(unit.outbox)
            return result

        result = await self.store.write(run)
        for outbox in outboxes:
            self.dispatch(outbox)
        return result

    async def read(self, fn: Callable[[Session], T]) -> T:
        """Run `fn` on one snapshot of the database."""
        return await self.store.read(fn)

    async def look(self, user: str, fn: Callable[[Session], T]) -> T:
        """Make a list for a user: `read`, when it is the user's turn. Others wait for one of their lists, not all."""
        async with self.listing.of(user):
            return await self.read(fn)

    def dispatch(self, outbox: Outbox) -> None:
        """Carry out what a committed unit of work asked for."""
        for agent_id, message in outbox.messages:
            self.backend.deliver(agent_id, message)
        self.known_tasks.forget(outbox.ended_allocations)
        if outbox.ended_allocations:
            self.room.set()
        for allocation_id in outbox.wake_allocations:
            self.wakeups.wake(("allocation", allocation_id))
        self.refusals.update(dict.fromkeys(outbox.blocked, math.inf))
        for holder in outbox.wake_logs:
            self.wakeups.wake(("logs", holder))
        for experiment_id in outbox.wake_searches:
            self.wakeups.wake(("search", experiment_id))
        if outbox.wake_streams:
            self.wakeups.wake("streams")
        if not self.saving.keys().isdisjoint(outbox.saved_allocations):
            self.room.set()
            self.scheduler_kick.set()
        if outbox.kick_scheduler:
            self.scheduler_kick.set()
        if outbox.ahead:
            self.ahead.extend(outbox.ahead)
            self.ahead_kick.set()
        if outbox.questions:
            self.questions.extend(outbox.questions)
            self.question_kick.set()
        for user, name in outbox.limit_hits:
            self.limiter.hits.note(user, name, self.clock())

    async def follow_lines(
        self, user: str, holder: int | str, ended: Callable[[Session], bool], after: int = 0
    ) -> AsyncIterator[list[LogLine]]:
        """Yield batches of the output of a trial or a user task, at most ten a second; end when all of it was sent.

        Args:
            user: Who reads.
            holder: The trial's number or the user task's id.
            ended: Whether it has ended; judged in the same read as the lines.
            after: Id of the last line that the reader has.
        """

        def read(s: Session) -> tuple[list[LogLine], int | None, bool]:
            over = ended(s)
            wanted = logs.Wanted(after or None, limit=LINES_PER_BATCH, chars=CHARS_PER_BATCH)
            lines, edges = logs.pick(s, holder, wanted)
            return lines, edges.next, over

        with self.wakeups.listen(("logs", holder)) as news:
            while not self.stopped:
                news.clear()
                async with self.catching_up.of(user):
                    lines, more, over = await self.read(read)
                if lines:
                    after = lines[-1].id
                    batch = [lines]
                    del lines
                    yield batch.pop()  # not kept here while the reader does not read
                if more is not None:
                    continue
                if over:
                    return
                await news.wait()
                await asyncio.sleep(STREAM_PERIOD)

    async def settle(self) -> None:
        """Wait for writes whose callers have gone away."""
        while self._writes:
            await asyncio.gather(*self._writes, return_exceptions=True)


class Service:
    """The use cases of one subject. A master has one of each class, which `services[Class]` returns."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    @classmethod
    def made_for(cls, services: ServiceLookup) -> Self:
        """Make the one of a master; a class whose constructor takes other services asks for them here."""
        return cls(services.context)


S = TypeVar("S", bound=Service)


class ServiceLookup:
    """The services of one master."""

    def __init__(self, context: ServiceContext) -> None:
        self.context = context
        self._made: dict[type[Service], Any] = {}

    def __getitem__(self, wanted: type[S]) -> S:
        found = self._made.get(wanted)
        if found is None:
            found = self._made[wanted] = wanted.made_for(self)
        made: S = found
        return made

    def keep(self, *services: Service) -> None:
        """Keep services that need what only the caller has."""
        self._made.update({type(service): service for service in services})


def _note_failure(write: asyncio.Task[Any]) -> None:
    """Note how a write failed whose caller does not wait any more; that the database is away, others say."""
    if write.cancelled() or (error := write.exception()) is None or isinstance(error, DetlabError):
        return
    _log.error("a write whose caller had gone failed", exc_info=error)
