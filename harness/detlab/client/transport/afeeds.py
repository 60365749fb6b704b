"""Follows streams and reads pages of logs over real connections, for the asynchronous client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from detlab.client.transport.calls import Flow, Reply
from detlab.client.transport.interrupts import short_interrupts
from detlab.client.transport.session import AsyncSession
from detlab.client.transport.streaming import EventFeed, Item, Lines, Reconnect
from detlab.errors import ClusterUnreachable, DetlabError, Unavailable
from detlab.schemas.wire import LogLine

if TYPE_CHECKING:
    import httpx

Notice = Callable[[DetlabError, float], None]
"""Called when a stream broke: with the reason and the seconds until the next attempt."""
Ask: TypeAlias = Callable[[int | None], Flow[tuple[list[LogLine], int | None]]]
"""From the id of the last line that is known to the request for the next page."""


def _head(response: httpx.Response, body: bytes = b"") -> Reply:
    return Reply(response.status_code, body, response.headers.get("location"))


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


async def follow(
    session: AsyncSession,
    feed: EventFeed[Item],
    ended: Callable[[], Awaitable[bool]],
    *,
    deadline: float | None = None,
    notice: Notice | None = None,
) -> AsyncIterator[Item]:
    """Yield the items of a feed until it is finished or the deadline (`time.monotonic`) has passed.

    Args:
        session: Connections to the master.
        feed: What to follow.
        ended: Asks the master whether what is followed has ended; called when a connection closes or falls
            silent.
        deadline: When to stop.
        notice: Called whenever the connection breaks.
    """
    import httpx

    feed.backoff = session.backoff
    with short_interrupts("stopped following; what runs on the cluster continues"):
        while not feed.finished and not _over(deadline):
            try:
                async with session.open(feed.call(), limit=_left(deadline)) as response:
                    feed.check(_head(response, b"" if response.is_success else await response.aread()))
                    async for data in _lines(response):
                        item = feed.line(data)
                        if item is not None:
                            yield item
                        if feed.silent:
                            feed.checked(await ended())
                        if feed.done_here or _over(deadline):
                            break
                if feed.finished or _over(deadline):
                    return
                pause = feed.jump() if feed.jumped else None if await ended() else feed.lost(feed.ended_early())
            except httpx.TransportError as error:
                if _over(deadline):
                    return
                pause = _lost(feed, session.address.unreachable(str(error) or type(error).__name__), notice)
            except Reconnect as broken:
                pause = _lost(feed, broken.error, notice)
            except (ClusterUnreachable, Unavailable) as error:  # asking whether it has ended found nobody
                pause = _lost(feed, error, notice)
            if pause is None:
                return
            left = _left(deadline)
            await asyncio.sleep(pause if left is None else max(0.0, min(pause, left)))


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    lines = Lines()
    async for chunk in response.aiter_bytes():
        for data in lines.feed(chunk):
            yield data


def _lost(feed: EventFeed[Item], error: DetlabError, notice: Notice | None) -> float:
    pause = feed.lost(error)
    if notice is not None:
        notice(error, pause)
    return pause


async def log_lines(session: AsyncSession, ask: Ask, after: int | None = None) -> AsyncIterator[LogLine]:
    """Yield the log lines of all pages after a line."""
    position = after
    while True:
        lines, following = await session.run(ask(position))
        for line in lines:
            yield line
        # A page of a filter may be empty and not the last: it looks at so many lines at once.
        if following is None or following == position:
            return
        position = following
