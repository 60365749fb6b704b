"""Routes of runs from elsewhere."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from pydantic import Field

from detlab.schemas.wire import RecordAck, Wire
from detlab.schemas.wire.runs import (
    GROUP_CHARS,
    PLACE_CHARS,
    BeginRun,
    RunBegun,
    RunPoints,
    RunRecords,
    RunView,
    RunViewList,
)
from detlab_hub.core.rights import Action
from detlab_hub.services.tracking.reports import RunReports
from detlab_hub.services.tracking.run_views import RunViews
from detlab_hub.services.tracking.runs import TrackedRuns
from detlab_hub.web.base import Guarded
from detlab_hub.web.experiments.trials import LogPage, LogsQuery
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class RunsQuery(Wire):
    """Which runs."""

    project: str = Field("", max_length=PLACE_CHARS)
    """`NAME` of the caller's own workspace, `WORKSPACE/NAME`, `OWNER/WORKSPACE/NAME`; empty: the caller's own runs in
    all projects."""
    group: str = Field("", max_length=GROUP_CHARS)
    job_type: str = Field("", max_length=GROUP_CHARS)
    status: Literal["", "RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED"] = ""
    limit: int = Field(100, ge=1, le=1000)
    skip: int = Field(0, ge=0, lt=2**31)
    """Runs of the pages before: `next` of the page before."""


class RunPointsQuery(Wire):
    """Which metric."""

    name: str = Field(min_length=1, max_length=1000)
    limit: int = Field(10_000, ge=1, le=10_000)
    after: str = Field("", max_length=200)
    """`next` of the page before."""


@route("runs")
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


@route("runs/{run_id}")
class Run(Guarded):
    """One run."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str) -> RunView:
        """Return a run, by its id or by the caller's own key, with the newest value of each metric."""
        return await self.services[RunViews].get(self.person, run_id)

    @needs("write", cross_site="xsrf", action=Action.RUN_DELETE)
    async def delete(self, run_id: str) -> RunView:
        """Mark a run as deleted; nothing of it is removed."""
        found = await self.services[RunViews].get(self.person, run_id)
        await self.services[TrackedRuns].set_deleted(self.person, found.id, True)
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


@route("runs/{run_id}/logs")
class Logs(Guarded):
    """What a run has printed."""

    @needs("read", cross_site="xsrf")
    async def get(self, run_id: str, query: LogsQuery) -> LogPage:
        """Return lines of the output of a run."""
        items, edges = await self.services[RunViews].output(self.person, run_id, **query.model_dump())
        return LogPage(items=list(items), **asdict(edges))
