"""Live streams: events of experiments and lines of output, read from the database, woken by commits.

Every reader has its own cursor. A reader that is behind catches up by its own reads; one that is up to date shares the
reads of a tail with others. No reader delays another, and nothing is queued for one that does not read. Events of
experiments, trials and user tasks carry no data in the log: they say *that* something changed, and get the current view
when they are read, once per read. `cluster` never carries data: it says that the queue or the agents should be fetched
again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from weakref import WeakKeyDictionary, ref

from sqlalchemy.orm import Session

from detlab.schemas.wire import Event, LogLine, TrialState
from detlab_hub.services.base.access import experiment_for, trial_for
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.streams.batches import Follow, StreamPart, StreamReader, Subscription
from detlab_hub.services.streams.reads import LogRead
from detlab_hub.services.streams.tails import Sink, Tail, Tails
from detlab_hub.store.queries import events
from detlab_hub.store.tables import TrialRow

__all__ = ["EventStream", "Follow", "Stream"]

KEPT = 8
"""Parts that are buffered for a caller that iterates over a stream."""


class Stream(Service):
    """Open streams."""

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._tails = Tails(context)
        self._subscriptions: WeakKeyDictionary[Subscription, ref[Subscription]] = WeakKeyDictionary()
        """Subscriptions of the open streams, each by itself; weak on both sides, or none would ever be freed."""

    def events(
        self,
        caller: Caller,
        experiment_id: int | None,
        *,
        after: int | None = None,
        names: Sequence[str] | None = None,
        groups: Sequence[str] | None = None,
        follows: Sequence[Follow] = (),
    ) -> EventStream:
        """Stream events after a cursor, without end: iterate over the result in batches, or `run` it into a sink.

        Either raises `NotFound` when there is no such experiment for the caller, or no longer.

        Args:
            caller: Whose experiments are shown.
            experiment_id: One experiment with its metrics, or None: the states of all.
            after: Cursor to resume after; None starts now.
            names: Metric names to send, None for all.
            groups: Metric groups to send, None for all.
            follows: With the states of all: the metrics that are sent, too. What does not exist, or not for the caller,
                is left out: one closed subject must not end a stream that carries many.
        """
        subscription = Subscription(
            experiment_id,
            None if not names else frozenset(names),
            None if not groups else frozenset(groups),
            tuple(follows) if experiment_id is None else (),
        )
        return EventStream(self._context, self._tails, caller, self._shared(subscription), after)

    def _shared(self, subscription: Subscription) -> Subscription:
        """Return one object for all equal subscriptions: their output is found by it."""
        known = self._subscriptions.get(subscription)
        found = None if known is None else known()
        if found is None:
            self._subscriptions[subscription] = ref(subscription)
        return found or subscription

    async def logs(self, caller: Caller, trial_id: int, after: int = 0) -> AsyncIterator[list[LogLine]]:
        """Yield batches of a trial's output after a line; end when the trial has ended and all of it was sent.

        Raises:
            NotFound: There is no such trial for the caller, or no longer.
        """
        await self._context.read(lambda s: trial_for(s, caller, trial_id))

        def ended(s: Session) -> bool:
            row = s.get(TrialRow, trial_id)
            # Checked before the lines are read: a withdrawn right ends the stream.
            return row is None or TrialState(trial_for(s, caller, trial_id).state).terminal

        async for lines in self._context.follow_lines(caller.name, trial_id, ended, after):
            yield lines

    async def stop(self) -> None:
        """End the reading when the services do."""
        await self._tails.stop()


class EventStream:
    """The events for one reader: iterate over it, or run it; one of them, once."""

    def __init__(
        self, context: ServiceContext, tails: Tails, caller: Caller, subscription: Subscription, after: int | None
    ) -> None:
        self._context = context
        self._tails = tails
        self._caller = caller
        self._subscription = subscription
        self._after = after
        self._batches = self._iterate()

    def __aiter__(self) -> AsyncIterator[list[Event]]:
        return self._batches

    async def __anext__(self) -> list[Event]:
        return await anext(self._batches)

    async def aclose(self) -> None:
        """Leave the stream."""
        await self._batches.aclose()

    async def run(self, sink: Sink) -> None:
        """Hand all events to a sink, in order and each once, until the services stop.

        Raises:
            NotFound: There is no such experiment for the caller, or no longer.
        """
        reader = await self._open()
        tail = self._tails.for_one_more()
        tail.enter(reader)
        try:
            while not self._context.stopped:
                if await self._caught_up(reader, sink):
                    await self._with_others(reader, tail, sink)
                await sink.room()
        finally:
            tail.leave(reader)

    async def _caught_up(self, reader: StreamReader, sink: Sink) -> bool:
        """Send the reader a slice of what it has missed; return whether that was the last.

        A slice that finds no room is dropped, not kept: it is in the database.
        """
        log_read = self._log_read(reader)
        async with self._context.catching_up.of(self._caller.name):
            found = await self._context.read(lambda s: log_read(s).slice_for(reader))
        return found.tell(reader, sink.put) and not found.more

    async def _with_others(self, reader: StreamReader, tail: Tail, sink: Sink) -> None:
        """Receive the tail's events until it releases the reader."""
        member = tail.join(reader, sink)
        if member is None:
            return
        try:
            await member.left
        finally:
            tail.part(reader)

    async def _iterate(self) -> AsyncGenerator[list[Event], None]:
        kept = _Kept()
        running = asyncio.ensure_future(self.run(kept))
        running.add_done_callback(lambda _: kept.news.set())
        try:
            while True:
                await kept.news.wait()
                kept.news.clear()
                while kept.parts:
                    yield kept.take().events
                if running.done():
                    running.result()
                    return
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _open(self) -> StreamReader:
        def start(s: Session) -> int:
            if self._subscription.experiment_id is not None:
                experiment_for(s, self._caller, self._subscription.experiment_id)
            return events.head(s) if self._after is None else self._after

        cursor = await self._context.read(start)
        return StreamReader(self._caller, self._subscription, cursor, sent_cursor=cursor)

    def _log_read(self, reader: StreamReader) -> LogRead:
        subscription = reader.subscription
        return LogRead(
            reader.cursor,
            self._context.clock(),
            self._context.pending_reasons,
            experiment_id=subscription.experiment_id,
            metrics_of=subscription.metrics_of,
            watched=() if subscription.experiment_id is None else (subscription.experiment_id,),
        )


class _Kept:
    """The buffer of an iterator: not much, the rest stays in the database."""

    def __init__(self) -> None:
        self.parts: deque[StreamPart] = deque()
        self.news = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()

    def put(self, part: StreamPart) -> bool:
        if len(self.parts) >= KEPT:
            self._room.clear()
            return False
        self.parts.append(part)
        self.news.set()
        return True

    def take(self) -> StreamPart:
        part = self.parts.popleft()
        self._room.set()
        return part

    async def room(self) -> None:
        await self._room.wait()
