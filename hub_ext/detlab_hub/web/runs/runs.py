"""Routes of runs from elsewhere."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Literal

from pydantic import Field

from detlab.schemas.wire import LogLine, RecordAck, Wire
from detlab.schemas.wire.runs import (
    GROUP_CHARS,
    PLACE_CHARS,
    BeginRun,
    RunBeat,
    RunBegun,
    RunCurveList,
    RunFileList,
    RunPoints,
    RunRecords,
    RunView,
    RunViewList,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.tracking.removal import RunRemovals
from detlab_hub.services.tracking.reports import RunReports
from detlab_hub.services.tracking.run_views import RunViews
from detlab_hub.services.tracking.runs import TrackedRuns
from detlab_hub.web.base import Guarded, PartQuery
from detlab_hub.web.experiments import streams
from detlab_hub.web.experiments.media import BYTES, FILE_POLICY
from detlab_hub.web.experiments.trials import LogPage, LogsQuery
from detlab_hub.web.files import Download
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs
from detlab_hub.web.streaming import StreamHandler


class RunsQuery(Wire):
    """Which runs."""

    project: str = Field("", max_length=PLACE_CHARS)
    """`NAME` of the caller's own workspace, `WORKSPACE/NAME`, `OWNER/WORKSPACE/NAME`; empty: the caller's own runs in
    all projects."""
    group: str = Field("", max_length=GROUP_CHARS)
    job_type: str = Field("", max_length=GROUP_CHARS)
    status: Literal["", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"] = ""
    deleted: bool = False
    """Only those that are marked as deleted; else none of these."""
    limit: int = Field(100, ge=1, le=1000)
    skip: int = Field(0, ge=0, lt=2**31)
    """Runs of the pages before: `next` of the page before."""


class DeleteRunQuery(Wire):
    """How far."""

    forever: bool = False
    """Remove it for good, with all that it has logged: only one that is marked as deleted already."""


class RunPointsQuery(Wire):
    """Which metric."""

    name: str = Field(min_length=1, max_length=1000)
    limit: int = Field(10_000, ge=1, le=10_000)
    after: str = Field("", max_length=200)
    """`next` of the page before."""


class RunCurvesQuery(Wire):
    """Which curves, and how finely."""

    name: list[str] = Field(default_factory=list, max_length=500)
    """Names of metrics; none means all."""
    max_points: int = Field(500, ge=4, le=10_000)
    """Points that a curve is thinned to: its extremes and its end stay exact."""
    skip: int = Field(0, ge=0, lt=2**31)
    """Curves of the parts before: the `next` of the part before."""


class RunFileQuery(Wire):
    """Which file."""

    path: str = Field(min_length=1, max_length=8000)
    """As the list of files has it."""


@route("runs", relayed=True)
class Runs(Guarded):
    """Runs that no cluster started."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: RunsQuery) -> RunViewList:
        """List the runs of a project, the newest first."""
        return await self.services[RunViews].list(self.person, **query.model_dump())

    @needs("write", cross_site="xsrf", action=Action.RUN_BEGIN)
    async def post(self, body: BeginRun) -> RunBegun:
        """Begin a run, or find the one of this key; say what is stored of a process of it."""
        return await self.services[RunReports].begin(self.person, body)


@route("runs/{run_id}", relayed=True)
class Run(Guarded):
    """One run."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str) -> RunView:
        """Return a run, by its id or by the caller's own key, with the newest value of each metric."""
        return await self.services[RunViews].get(self.person, run_id)

    @needs("write", cross_site="xsrf", action=Action.RUN_DELETE)
    async def delete(self, run_id: str, query: DeleteRunQuery) -> RunView:
        """Mark a run as deleted, of which nothing is removed; or remove one that is marked for good."""
        if query.forever:
            return await self.services[RunRemovals].remove(self.person, run_id)
        found = await self.services[RunViews].get(self.person, run_id)
        await self.services[TrackedRuns].set_deleted(self.person, found.id, True)
        return await self.services[RunViews].get(self.person, found.id)


@route("runs/{run_id}/restore", relayed=True)
class RestoredRun(Guarded):
    """A run that was marked as deleted."""

    @needs("write", cross_site="xsrf", action=Action.RUN_DELETE)
    async def post(self, run_id: str) -> RunView:
        """Take the mark off again: the run is in lists as before."""
        found = await self.services[RunViews].get(self.person, run_id)
        await self.services[TrackedRuns].set_deleted(self.person, found.id, False)
        return await self.services[RunViews].get(self.person, found.id)


@route("runs/{run_id}/writers/{writer}/records")
class Records(Guarded):
    """What a process of a run sends."""

    @needs("write", cross_site="xsrf", action=Action.RUN_REPORT)
    async def post(self, run_id: str, writer: str, body: RunRecords) -> RecordAck:
        """Store records that are not stored yet, in their order; none: the process lives."""
        return await self.services[RunReports].take(self.person, run_id, writer, body)


@route("runs/{run_id}/metrics")
class Points(Guarded):
    """The values of a metric."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: RunPointsQuery) -> RunPoints:
        """Return a page of the values of a metric, by step and time."""
        return await self.services[RunViews].points(
            self.person, run_id, query.name, limit=query.limit, after=query.after
        )


@route("runs/{run_id}/curves", relayed=True)
class Curves(Guarded):
    """The curves of a run."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: RunCurvesQuery) -> RunCurveList:
        """Return curves of metrics by name, thinned for a picture."""
        return await self.services[RunViews].curves(
            self.person, run_id, names=query.name or None, most=query.max_points, skip=query.skip
        )


@route("runs/{run_id}/files", relayed=True)
class Files(Guarded):
    """The files of a run."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: PartQuery) -> RunFileList:
        """List the files of a run by path: its code, its packages, and what it has logged."""
        return await self.services[RunViews].files(self.person, run_id, query.skip)


@route("runs/{run_id}/file", relayed=True)
class File(Download):
    """One of them."""

    @needs("read", cross_site="link", media=BYTES)
    async def get(self, run_id: str, query: RunFileQuery) -> None:
        """Download a file of a run."""
        self.set_header("Content-Security-Policy", FILE_POLICY)
        name = re.sub(r"[^A-Za-z0-9.-]+", "-", PurePosixPath(query.path).name).strip("-.")[:100] or "file"
        await self.send_file(self.services[RunViews].open_file(self.person, run_id, query.path), BYTES, name)


@route("runs/{run_id}/stream", relayed=True)
class RunStream(StreamHandler):
    """One run, live."""

    @needs("read", cross_site="xsrf", streams=RunBeat)
    async def get(self, run_id: str) -> None:
        """Follow a run: a line whenever it has logged something; the stream ends when the run has ended."""
        await self.stream(self.services[RunViews].beats(self.person, run_id))


@route("runs/{run_id}/logs/stream", relayed=True)
class LogStream(StreamHandler):
    """The output of a run, live."""

    @needs("read", cross_site="xsrf", streams=LogLine)
    async def get(self, run_id: str, query: streams.LogsQuery) -> None:
        """Follow a run's output; the stream ends when the run has ended."""
        await self.stream(self.services[RunViews].follow(self.person, run_id, query.after))


@route("runs/{run_id}/logs", relayed=True)
class Logs(Guarded):
    """What a run has printed."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: LogsQuery) -> LogPage:
        """Return lines of the output of a run."""
        items, edges = await self.services[RunViews].output(self.person, run_id, **query.model_dump())
        return LogPage(items=list(items), **asdict(edges))
