"""Drives feeds over real connections: one blocking, one asynchronous loop around the same decisions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from detlab.client.transport.calls import Reply
from detlab.client.transport.session import AsyncSession, Session
from detlab.client.transport.streaming import Feed, Item, Lines, Reconnect
from detlab.errors import ClusterUnreachable, DetlabError, Unavailable

if TYPE_CHECKING:
    import httpx

Notice = Callable[[DetlabError, float], None]
"""Called when a stream broke: with the reason and the seconds until the next attempt."""


def _head(response: httpx.Response, body: bytes = b"") -> Reply:
    return Reply(response.status_code, body, response.headers.get("location"))


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def follow(
    session: Session,
    feed: Feed[Item],
    ended: Callable[[], bool],
    *,
    deadline: float | None = None,
    notice: Notice | None = None,
) -> Iterator[Item]:
    """Yield the items of a feed until it is finished or the deadline (`time.monotonic`) has passed.

    Args:
        session: The blocking face.
        feed: What to follow.
        ended: Asks the master whether what is followed has ended; called when a connection closes or falls
            silent.
        deadline: When to stop.
        notice: Told about every break.
    """
    import httpx

    feed.backoff = session.backoff
    while not feed.finished and not _over(deadline):
        try:
            with session.open(feed.call(), limit=_left(deadline)) as response:
                feed.check(_head(response, b"" if response.is_success else response.read()))
                for data in _lines(response):
                    item = feed.line(data)
                    if item is not None:
                        yield item
                    if feed.silent:
                        feed.checked(ended())
                    if feed.done_here or _over(deadline):
                        break
            if feed.finished or _over(deadline):
                return
            pause = feed.jump() if feed.jumped else _closed(feed, ended)
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
        time.sleep(pause if left is None else max(0.0, min(pause, left)))


def _lines(response: httpx.Response) -> Iterator[bytes]:
    lines = Lines()
    for chunk in response.iter_bytes():
        yield from lines.feed(chunk)


async def _alines(response: httpx.Response) -> AsyncIterator[bytes]:
    lines = Lines()
    async for chunk in response.aiter_bytes():
        for data in lines.feed(chunk):
            yield data


def _closed(feed: Feed[Item], ended: Callable[[], bool]) -> float | None:
    return None if ended() else feed.lost(feed.ended_early())


def _lost(feed: Feed[Item], error: DetlabError, notice: Notice | None) -> float:
    pause = feed.lost(error)
    if notice is not None:
        notice(error, pause)
    return pause


async def follow_async(
    session: AsyncSession,
    feed: Feed[Item],
    ended: Callable[[], Awaitable[bool]],
    *,
    deadline: float | None = None,
    notice: Notice | None = None,
) -> AsyncIterator[Item]:
    """Yield the items of a feed; the asynchronous twin of `follow`."""
    import httpx

    feed.backoff = session.backoff
    while not feed.finished and not _over(deadline):
        try:
            async with session.open(feed.call(), limit=_left(deadline)) as response:
                feed.check(_head(response, b"" if response.is_success else await response.aread()))
                async for data in _alines(response):
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
