"""Reading the output of trials and tasks page by page, blocking or asynchronous."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeAlias

from detlab.client.facts import next_logs
from detlab.client.transport.calls import Flow
from detlab.client.transport.session import AsyncSession, Session
from detlab.schemas.wire import LogLine

Ask: TypeAlias = Callable[[int | None], Flow[tuple[list[LogLine], int | None]]]
"""From the id of the last line that is known to the request for the next page."""


def lines(session: Session, ask: Ask, after: int | None = None) -> Iterator[LogLine]:
    """Yield the lines of all pages."""
    position = after
    while True:
        page = session.run(ask(position))
        yield from page[0]
        position = next_logs(page, position)
        if position is None:
            return


async def lines_async(session: AsyncSession, ask: Ask, after: int | None = None) -> AsyncIterator[LogLine]:
    """Yield the lines of all pages."""
    position = after
    while True:
        page = await session.run(ask(position))
        for line in page[0]:
            yield line
        position = next_logs(page, position)
        if position is None:
            return


def wanted(line: LogLine, rank: int | None, search: str | None, node: str | None) -> bool:
    """Return whether a line that is followed is one of those; streams have all."""
    right_place = (rank is None or line.rank == rank) and (node is None or line.node == node)
    return right_place and (search is None or search in line.text)
