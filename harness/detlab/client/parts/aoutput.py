"""The output of a trial: the lines that it wrote, and the metrics that it reported."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from detlab.client import tabular
from detlab.client.facts import TrialFacts, TrialMetrics, reports
from detlab.client.operations import experiments
from detlab.client.operations import logs as log_operations
from detlab.client.operations.runs import media as media_operations
from detlab.client.ordering import LogLevel, line_filter
from detlab.client.transport.afeeds import Notice, follow
from detlab.client.transport.alines import AsyncWrittenLines
from detlab.client.transport.calls import Flow
from detlab.client.transport.streaming import log_feed
from detlab.schemas.logwire import RemovedLogs
from detlab.schemas.wire import LogLine
from detlab.schemas.wire.media import MediaKeyView, MediaView


class AsyncTrialOutput(AsyncWrittenLines, TrialFacts):
    """The part of an asynchronous trial that reads its output."""

    async def iter_logs(
        self,
        follow: bool = False,
        *,
        head: int | None = None,
        tail: int | None = None,
        rank_ids: Collection[int] | None = None,
        stdtypes: Collection[str] | None = None,
        min_level: LogLevel | str | None = None,
        timestamp_before: datetime | float | str | None = None,
        timestamp_after: datetime | float | str | None = None,
        search_text: str | None = None,
        after: int | None = None,
        rank: int | None = None,
        search: str | None = None,
        node: str | None = None,
        notice: Notice | None = None,
    ) -> AsyncIterator[LogLine]:
        """Yield its output line by line.

        Args:
            follow: Continue until the trial has ended, through disconnects.
            head: Yield at most this many lines.
            tail: Yield the last lines only, this many; with `follow`, those that come, too.
            rank_ids: Only these ranks' lines.
            stdtypes: Only lines written to these: `stdout`, `stderr`, `launcher`.
            min_level: Only lines at least this severe; those without a level count as INFO.
            timestamp_before: Only lines written before: a time, seconds since the epoch, or text in ISO 8601.
            timestamp_after: Only lines written at or after.
            search_text: The same as `search`, under Determined's name.
            after: Id of the last line that is already known.
            rank: Only this rank's lines.
            search: Only lines that contain this text.
            node: Only lines that were written on this agent.
            notice: Called whenever the connection breaks while following.

        Raises:
            ValueError: There is no such level, or a time cannot be read.
        """
        passes = line_filter(
            rank_ids=rank_ids,
            stdtypes=stdtypes,
            min_level=min_level,
            timestamp_before=timestamp_before,
            timestamp_after=timestamp_after,
        )
        text = search if search is not None else search_text
        count = 0
        if tail is not None:
            last: deque[LogLine] = deque(maxlen=tail)
            async for line in self._lines(False, after, rank, text, node, notice):
                after = line.id
                if passes(line):
                    last.append(line)
            for line in itertools.islice(last, head):
                count += 1
                yield line
            if not follow:
                return
        if head is not None and count >= head:
            return
        async for line in self._lines(follow, after, rank, text, node, notice):
            if passes(line):
                count += 1
                yield line
                if head is not None and count >= head:
                    return

    async def list_media(
        self,
        *,
        key: str | None = None,
        kind: str | None = None,
        step: int | None = None,
        at: int | None = None,
        limit: int | None = None,
    ) -> list[MediaView]:
        """List the images, tables and other objects that it logged, in the order of their steps.

        Args:
            key: Of this key alone.
            kind: Of this kind alone: image, audio, video, text, html, table, histogram, confusion, curves, plotly.
            step: Of this step alone.
            at: Of each key, those of its newest step up to this one.
            limit: At most so many.
        """
        return await self._session.run(
            media_operations.list_media(self.id, key=key, kind=kind, step=step, at=at, limit=limit)
        )

    async def media_keys(self) -> list[MediaKeyView]:
        """List the keys under which it logged images, tables and other objects."""
        return await self._session.run(media_operations.media_keys(self.id))

    async def read_media(self, view: MediaView) -> bytes:
        """Return the content of an object of `list_media`."""
        return await self._session.run(media_operations.media_bytes(view))

    async def download_media(self, folder: str | Path, views: Sequence[MediaView] | None = None) -> list[Path]:
        """Download objects into a folder and return their files; those that are there already are left.

        Args:
            folder: Made if it is missing. Names of files are made of key, step and id, with plain characters alone.
            views: What `list_media` returned; None: all.
        """
        chosen = await self.list_media() if views is None else views
        return [await self._session.run(media_operations.download_media(one, Path(folder))) for one in chosen]

    async def removed_logs(self) -> RemovedLogs:
        """Return how much of its output retention has removed, and when."""
        return await self._session.run(log_operations.removed(self.id))

    def _log_page(self, **wanted: Any) -> Flow[tuple[list[LogLine], int | None]]:
        return experiments.trial_logs(self.id, **wanted)

    def _follow_logs(self, after: int | None, notice: Notice | None) -> AsyncIterator[LogLine]:
        return follow(self._session, log_feed(self.id, after), self._ended, notice=notice)

    async def _ended(self) -> bool:
        return (await self._session.run(experiments.trial(self.id))).state.terminal

    async def iter_metrics(
        self, group: str | None = None, *, names: Sequence[str] | None = None, max_points: int | None = None
    ) -> AsyncIterator[TrialMetrics]:
        """Yield its reports in order of step, of one group or of all, with these metrics or with all."""
        flow = experiments.trial_metrics(self.id, group=group, names=names, max_points=max_points)
        series = await self._session.run(flow)
        for report in reports(series):
            yield report

    async def metrics_frame(self, group: str | None = None, *, max_points: int | None = None) -> Any:
        """Return its metrics as a pandas frame, a row for each value.

        Args:
            group: Only this group: `training`, `validation` or one of the code's own.
            max_points: Most points of a curve; longer ones are thinned. None: 10,000.

        Raises:
            DetlabError: pandas is not installed.
        """
        return tabular.frame(await self.metric_rows(group, max_points=max_points), tabular.METRIC_COLUMNS)

    async def metric_rows(
        self, group: str | None = None, *, names: Sequence[str] | None = None, max_points: int | None = None
    ) -> list[dict[str, Any]]:
        """Return its metrics as plain rows, as `metrics_frame` has them; with `names` these alone."""
        most = max_points or tabular.MOST_POINTS
        flow = experiments.trial_metrics(self.id, group=group, names=names, max_points=most)
        return tabular.metric_rows(await self._session.run(flow))

    async def stream_metrics(self, group: str) -> AsyncIterator[TrialMetrics]:
        """Do the same as `iter_metrics`, which replaced it in Determined."""
        async for report in self.iter_metrics(group):
            yield report

    async def stream_training_metrics(self) -> AsyncIterator[TrialMetrics]:
        """Do the same as `iter_metrics("training")`, which replaced it in Determined."""
        async for report in self.iter_metrics("training"):
            yield report

    async def stream_validation_metrics(self) -> AsyncIterator[TrialMetrics]:
        """Do the same as `iter_metrics("validation")`, which replaced it in Determined."""
        async for report in self.iter_metrics("validation"):
            yield report
