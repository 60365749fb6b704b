"""The lines that a trial or a user task wrote."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from detlab.client.transport.afeeds import Notice, log_lines
from detlab.client.transport.calls import Flow
from detlab.client.transport.session import AsyncSession
from detlab.schemas.wire import LogLine


def _wanted(line: LogLine, rank: int | None, search: str | None, node: str | None) -> bool:
    """Return whether a followed line matches the filters: the master's streams are not filtered."""
    right_place = (rank is None or line.rank == rank) and (node is None or line.node == node)
    return right_place and (search is None or search in line.text)


class AsyncWrittenLines:
    """The part of an asynchronous trial or user task that reads what it wrote."""

    _session: AsyncSession

    async def logs(
        self, tail: int | None = None, *, rank: int | None = None, search: str | None = None, node: str | None = None
    ) -> list[LogLine]:
        """Return its last `tail` lines of output, or all of them."""
        if tail is not None:
            call = self._log_page(tail=tail, rank=rank, search=search, node=node)
            return (await self._session.run(call))[0]
        return [line async for line in self._lines(False, None, rank, search, node, None)]

    async def search_logs(
        self,
        search: str | None = None,
        *,
        regex: str | None = None,
        rank: int | None = None,
        level: str | None = None,
        stream: str | None = None,
        since: float | None = None,
        until: float | None = None,
        node: str | None = None,
    ) -> AsyncIterator[LogLine]:
        """Yield the lines of its output so far that match all of these conditions; the master does the search.

        Args:
            search: Lines that contain this text; the case of ASCII letters does not matter.
            regex: Lines in which this regular expression (RE2 syntax) is found.
            rank: Lines of this rank.
            level: Lines at least this severe: DEBUG, INFO, WARNING, ERROR or CRITICAL.
            stream: Lines written to this stream: stdout, stderr or launcher.
            since: Lines written at or after this time, in seconds since the epoch.
            until: Lines written before this time, in seconds since the epoch.
            node: Lines written on this agent.
        """
        like = {"search": search, "regex": regex, "rank": rank, "node": node, "level": level, "stream": stream}
        async for line in self._all_lines(None, **like, since=since, until=until):
            yield line

    async def _lines(
        self,
        follow: bool,
        after: int | None,
        rank: int | None,
        search: str | None,
        node: str | None,
        notice: Notice | None,
    ) -> AsyncIterator[LogLine]:
        if follow:
            async for line in self._follow_logs(after, notice):
                if _wanted(line, rank, search, node):
                    yield line
            return
        async for line in self._all_lines(after, rank=rank, search=search, node=node):
            yield line

    def _all_lines(self, after: int | None, **like: Any) -> AsyncIterator[LogLine]:
        return log_lines(self._session, lambda place: self._log_page(after=place, **like), after)

    def _log_page(self, **like: Any) -> Flow[tuple[list[LogLine], int | None]]:
        raise NotImplementedError

    def _follow_logs(self, after: int | None, notice: Notice | None) -> AsyncIterator[LogLine]:
        raise NotImplementedError
