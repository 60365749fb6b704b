"""Durable consumers of the event log: each takes every event at least once and in order, across crashes.

A consumer has a cursor in the database. It is given what lies beyond, and its cursor moves when it has taken that; a
master that dies in between gives it the same again. One that fails is tried again, later and later, and holds up no
other. The log keeps what a consumer has not taken, up to ten times its usual length; one that is further behind is told
how many events it lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from sqlalchemy.orm import Session

from detlab.errors import Unavailable
from detlab.plugins import Plugins
from detlab.schemas.wire import Event
from detlab_hub.services.base.context import Service, ServiceContext
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.base.wakeups import wait_until
from detlab_hub.store.queries import consumers, events

BATCH = 200
"""Events that a consumer is given at a time."""
FIRST_RETRY, LAST_RETRY = 1.0, 60.0
"""Seconds until a consumer that failed is tried again: doubled from the first to the last."""
LOOK_AGAIN = 30.0
"""Seconds after which the log is read without a wake-up."""
ERROR_CHARS = 500
_log = logging.getLogger(__name__)


class EventConsumer(Protocol):
    """Takes events. Found by its entry point in the group `detlab.event_consumers`, called without arguments.

    Attributes:
        name: Names its cursor: unique, and never changed.
        kinds: Which events it is given: of `experiment`, `trial`, `task`, `checkpoint`, `cluster`, `metrics`. The first
            three carry `moved`, {"from": state, "to": state}, where a state changed.
    """

    name: str
    kinds: frozenset[str]

    async def take(self, batch: Sequence[Event]) -> None:
        """Take events, in order. It may see one twice: `Event.id` tells.

        Raises:
            Exception: It could not take them; it is given the same ones again.
        """

    async def lost(self, count: int) -> None:
        """Take note that the next `count` events are gone: it was away for longer than the log is kept."""


CONSUMERS: Plugins[Callable[[], EventConsumer]] = Plugins("detlab.event_consumers", "event consumer")


def installed() -> list[EventConsumer]:
    """Make the consumers that are installed; one that cannot be made is logged and left out."""
    made: list[EventConsumer] = []
    for name in CONSUMERS.names():
        try:
            made.append(CONSUMERS.load(name)())
        except Exception:  # somebody's plug-in: it must not keep the master from starting
            _log.exception("event consumer %s (%s) cannot be made", name, CONSUMERS.origin(name))
    return made


class Consumers(Service):
    """The loops of all consumers.

    Args:
        context: Reads and writes.
        found: The consumers.

    Raises:
        ValueError: Two have one name.
    """

    def __init__(self, context: ServiceContext, found: Sequence[EventConsumer]) -> None:
        names = [consumer.name for consumer in found]
        if len(set(names)) < len(names):
            raise ValueError(f"event consumers must have names of their own, and have {', '.join(sorted(names))}")
        super().__init__(context)
        self._found = list(found)
        self.names = frozenset(names)

    async def run(self) -> None:
        """Serve all consumers until the master stops."""
        async with asyncio.TaskGroup() as group:
            for consumer in self._found:
                group.create_task(self._serve(consumer))

    async def _serve(self, consumer: EventConsumer) -> None:
        pause = 0.0
        with self._context.wakeups.listen("streams") as news:
            while not self._context.stopped:
                news.clear()
                try:
                    more = await self.step(consumer)
                except Unavailable:
                    pause = FIRST_RETRY
                except Exception as error:  # of the consumer, which may be anybody's
                    pause = min(max(FIRST_RETRY, 2 * pause), LAST_RETRY)
                    _log.warning("event consumer %s: %r; again in %g s", consumer.name, error, pause)
                else:
                    pause = 0.0
                    if not more:
                        await wait_until(news, LOOK_AGAIN)
                await asyncio.sleep(pause)

    async def step(self, consumer: EventConsumer) -> bool:
        """Give a consumer what comes next, once.

        Returns:
            Whether there may be more.

        Raises:
            Exception: What the consumer raised; its cursor did not move.
            Unavailable: The database is busy or broken.
        """
        name = consumer.name
        cursor = await self._context.write(lambda unit: consumers.register(unit.session, name, unit.now).cursor)

        def read(s: Session) -> tuple[int, int, list[Event]]:
            floor, head = events.bounds(s)
            return floor, head, events.after(s, max(cursor, floor), BATCH, kinds=consumer.kinds)

        floor, head, batch = await self._context.read(read)
        full = len(batch) == BATCH
        upto = batch[-1].id if full else head
        if upto <= cursor:
            return False
        try:
            if cursor < floor:
                await consumer.lost(floor - cursor)
            if batch:
                await consumer.take(batch)
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"[:ERROR_CHARS]
            await self._context.write(partial(_note_failure, name=name, error=failure))
            raise
        await self._context.write(lambda unit: consumers.advance(unit.session, name, upto, unit.now))
        return full


def _note_failure(unit: UnitOfWork, name: str, error: str) -> None:
    consumers.note_failure(unit.session, name, error, unit.now)
