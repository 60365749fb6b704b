"""The tail of the event log, read once for many readers.

A tail reads the log when a commit has woken it, immediately after a silence and then at most every `PERIOD`, and sends
each reader its part. It never waits: a reader whose sink is full is released, and returns when it has caught up by its
own reads. So does one whose subscription the read did not cover. Nothing is buffered for readers: what they have not
been sent is in the database. A failed read is retried a few times, from the tail's position, before its readers end
with the error.

Large audiences are divided over tails that read at different moments of the period, so that the last reader of a
round does not wait for all others.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Protocol

from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.streams.batches import Holders, Slice, StreamBatch, StreamPart, StreamReader
from detlab_hub.services.streams.reads import LogRead

PERIOD = 0.08
"""Least seconds between two reads of one tail, except the first after a silence."""
ROOM = 256
"""Readers of a tail before there is another one."""
PHASES = (0.0, 0.5, 0.25, 0.75)
"""Of each tail, in periods; with more readers the tails get larger."""
MOST_FOLLOWED = 500
"""A tail that follows the metrics of more experiments reads those of all."""
MOST_HOLDERS = 10_000
"""Owners and grants that a tail remembers."""
BREATH = 0.02
"""Seconds after which sending the result of a read yields to other coroutines."""
AGAIN = (0.1, 0.5, 2.0)
"""Seconds to wait before each retry of a failed read; then its readers end with the error."""

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where a reader's parts go."""

    def put(self, part: StreamPart) -> bool:
        """Take a part; False: there is no room, it was not taken."""
        ...

    async def room(self) -> None:
        """Wait until there is room again."""
        ...


class TailReader:
    """A reader that is up to date with its tail."""

    def __init__(self, reader: StreamReader, sink: Sink) -> None:
        self.reader = reader
        self.sink = sink
        self.left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the tail has released it; with the reason when that ends the stream."""

    def take(self, batch: StreamBatch) -> None:
        """Send the reader its part of a read, or release it."""
        if self.left.done() or batch.behind(self.reader):
            return
        if not batch.serves(self.reader):
            self.release()
            return
        try:
            sent = tell(self.reader, batch, self.sink)
        except Exception as error:  # what one reader ends with is not the end of the others
            self.release(error)
        else:
            if not sent:
                self.release()

    def release(self, error: Exception | None = None) -> None:
        """Leave the rest to the reader."""
        if self.left.done():
            return
        if error is None:
            self.left.set_result(None)
        else:
            self.left.set_exception(error)
            self.left.exception()  # a reader that is leaving at this moment does not ask


def tell(reader: StreamReader, batch: StreamBatch, sink: Sink) -> bool:
    """Send a reader its part of a read; False: its sink is full, and its cursor stays.

    Raises:
        NotFound: The reader may not read this, or no longer.
    """
    return Slice(batch.part(reader), batch.upto, batch.more).tell(reader, sink.put)


class Tail:
    """The tail of the log for some readers."""

    def __init__(self, context: ServiceContext, phase: float) -> None:
        self._context = context
        self._phase = phase * PERIOD
        self._members: dict[StreamReader, TailReader] = {}
        self._readers: set[StreamReader] = set()
        self._followed: Counter[int] = Counter()
        self._watched: Counter[int] = Counter()
        self._cursor = 0
        self._looked = 0.0
        """Time of the last read, on the loop's clock."""
        self._holders: Holders = {}
        self._grants = -1
        """`ServiceContext.grants` of what is remembered of holders."""
        self._running: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._readers)

    def enter(self, reader: StreamReader) -> None:
        """Add a reader: from the next read on the tail covers its subscription, also while it catches up."""
        self._readers.add(reader)
        self._followed.update(reader.subscription.metrics_of)
        self._watched.update(() if reader.subscription.experiment_id is None else (reader.subscription.experiment_id,))

    def leave(self, reader: StreamReader) -> None:
        """Forget a reader."""
        self._readers.discard(reader)
        self._forget(self._followed, reader.subscription.metrics_of)
        self._forget(
            self._watched, () if reader.subscription.experiment_id is None else (reader.subscription.experiment_id,)
        )

    @staticmethod
    def _forget(counted: Counter[int], ids: frozenset[int] | tuple[int, ...]) -> None:
        for number in ids:
            counted[number] -= 1
            if counted[number] <= 0:
                del counted[number]

    def join(self, reader: StreamReader, sink: Sink) -> TailReader | None:
        """Take in a reader that has caught up; None if the tail is ahead of it."""
        if self._running is None:
            self._cursor = reader.cursor
        elif reader.cursor < self._cursor:
            return None
        member = self._members[reader] = TailReader(reader, sink)
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        return member

    def part(self, reader: StreamReader) -> None:
        """Remove a reader; the last one ends the reading."""
        self._members.pop(reader, None)
        if not self._members:
            self._wake.set()

    async def stop(self) -> None:
        """End the reading; its readers end by themselves."""
        running = self._running
        if running is None:
            return
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        if self._running is running:  # it was cancelled before its first step, and has released no reader
            self._end(None)

    def _end(self, error: Exception | None) -> None:
        self._running = None
        members, self._members = self._members, {}
        for member in members.values():
            member.release(error)

    async def _run(self) -> None:
        error: Exception | None = None
        try:
            await self._follow()
        except Exception as found:  # of any kind: each reader gets it and ends with it
            error = found
        finally:
            self._end(error)

    async def _follow(self) -> None:
        with self._context.wakeups.listen("streams") as news:
            self._wake = news
            while self._members and not self._context.stopped:
                news.clear()
                self._looked = asyncio.get_running_loop().time()
                batch = await self._read()
                # A read that was in progress when grants changed: the next one begins by forgetting it.
                self._holders = {**({} if batch.forgets else self._holders), **batch.holders}
                self._cursor = batch.upto
                await self._hand_out(batch)
                if batch.more:
                    continue
                await news.wait()
                if self._members and not self._context.stopped:
                    await asyncio.sleep(self._pause())

    async def _hand_out(self, batch: StreamBatch) -> None:
        """Send each reader its part; other coroutines run in between when that takes long."""
        began = time.monotonic()
        for member in list(self._members.values()):
            if self._members.get(member.reader) is member:
                member.take(batch)
            if time.monotonic() - began > BREATH:
                await asyncio.sleep(0)
                began = time.monotonic()

    async def _read(self) -> StreamBatch:
        """Read; retry after a while if that fails: readers need not reconnect for a transient error.

        Raises:
            Exception: It has failed as often as `AGAIN` allows.
        """
        for pause in AGAIN:
            try:
                # made anew each time: remembered rights may have changed meanwhile
                return await self._context.read(self._log_read())
            except Exception as error:  # whatever it is, the database may be well again in a moment
                _log.warning("streams: a read failed, retried in %g s: %s", pause, error)
            await asyncio.sleep(pause)
        return await self._context.read(self._log_read())

    def _log_read(self) -> LogRead:
        if self._grants != self._context.grants or len(self._holders) > MOST_HOLDERS:
            self._grants = self._context.grants
            self._holders = {}
        return LogRead(
            self._cursor,
            self._context.clock(),
            self._context.pending_reasons,
            metrics_of=None if len(self._followed) > MOST_FOLLOWED else frozenset(self._followed),
            watched=tuple(self._watched),
            known=self._holders,
        )

    def _pause(self) -> float:
        """Return the seconds until the next read: until the tail's moment, or 0 after a silence."""
        now = asyncio.get_running_loop().time()
        if now - self._looked >= PERIOD:
            return 0.0
        wait = PERIOD - (self._looked - self._phase) % PERIOD
        if wait < PERIOD / 16:  # a clock's rounding, not a moment of its own
            wait += PERIOD
        return max(0.0, self._looked + wait - now)


class Tails:
    """The tails of one master."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._tails: list[Tail] = []

    def for_one_more(self) -> Tail:
        """Return the tail that a new reader belongs to."""
        for tail in self._tails:
            if len(tail) < ROOM:
                return tail
        if len(self._tails) < len(PHASES):
            self._tails.append(Tail(self._context, PHASES[len(self._tails)]))
            return self._tails[-1]
        return min(self._tails, key=len)

    async def stop(self) -> None:
        """End all of them."""
        for tail in self._tails:
            await tail.stop()
