"""Routes of trials: their views, metrics, structured values, logs and checkpoints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Literal

from pydantic import Field

from detlab.schemas.wire import LogLine, SeriesView, TrialView, Wire
from detlab_hub.core.rights import Action
from detlab_hub.services.experiments.trials import Trials
from detlab_hub.web.base import Guarded, RowId
from detlab_hub.web.experiments.experiments import CheckpointList, CheckpointsQuery
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs


class SeriesList(Wire):
    """Curves."""

    items: list[SeriesView]
    left_out: int = 0
    """So many are in no part, because they are too many: name those that are wanted."""
    next: int | None = None
    """`skip` of the next part, or null on the last one."""


class ValueView(Wire):
    """One structured value: a confusion matrix, a histogram, a text."""

    group: str
    name: str
    steps_completed: int
    time: float = 0.0
    value: Any = None


class ValueList(Wire):
    """Structured values, newest last."""

    items: list[ValueView]
    next: str | None = None
    """`before` of the page with older ones, or null if there may be none."""


class LogPage(Wire):
    """One page of log lines."""

    items: list[LogLine]
    next: int | None = None
    """`after` of the next page, or null if there is no more now."""
    older: int | None = None
    """With `tail` or `before`: the `before` of the lines that come before, or null if there are none.

    A filter looks for about a second, a regular expression at 50,000 lines at most: a page may then be short or empty
    and have a `next` or `older`.
    """
    removed: int = 0
    """Earlier lines that retention has removed; reported without `after`."""
    removed_at: float | None = None
    """When it did, in seconds since the epoch."""
    context: list[int] = Field(default_factory=list)
    """Ids of the lines that only stand beside one that was asked for."""


class MetricsQuery(Wire):
    """Which series, and how finely."""

    group: str | None = None
    name: list[str] = Field(default_factory=list)
    """Metric names; repeat it or separate by commas; none means all."""
    max_points: int = Field(1000, ge=2, le=100_000)
    """Points a curve is down-sampled to; a part holds some 16,000 points in all, and one curve no more."""
    skip: int = Field(0, ge=0, lt=2**31)
    """Curves of the parts before: the `next` of the part before."""


class ValuesQuery(Wire):
    """Which structured values."""

    group: str | None = None
    name: str | None = None
    limit: int = Field(100, ge=1, le=1000)
    before: str | None = Field(None, pattern=r"^[0-9]{1,18}\.[0-9]{1,18}$")
    """Only values that are older than those of the page before: its `next`."""


class LogsQuery(Wire):
    """Which log lines."""

    after: RowId = 0
    """Only lines with a larger id."""
    limit: int = Field(1000, ge=1, le=10_000)
    tail: int | None = Field(None, ge=0, le=10_000)
    """Only this many of the last lines, instead."""
    before: RowId | None = None
    """Only lines with a smaller id; without `after` the last ones of them."""
    rank: int | None = Field(None, ge=0, lt=2**31)
    node: str | None = Field(None, max_length=200)
    """Only lines that were written on this agent."""
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] | None = None
    """Only lines at least as severe."""
    search: str | None = Field(None, max_length=200)
    """A part of the text, whatever the case of ASCII letters."""
    stream: Literal["stdout", "stderr", "launcher"] | None = None
    """Only lines that were written there."""
    since: float | None = Field(None, allow_inf_nan=False)
    """Only lines from then on, in seconds since the epoch."""
    until: float | None = Field(None, allow_inf_nan=False)
    """Only lines before then."""
    regex: str | None = Field(None, max_length=1000)
    """A regular expression in the syntax of RE2 that is found in the text."""
    context: int = Field(0, ge=0, le=20)
    """So many lines before and after each line that fits come with it, of the same rank and node if these are given.
    A page then has 200 lines that fit at most."""


@route("trials/{trial_id}", relayed=True)
class Trial(Guarded):
    """One trial."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int) -> TrialView:
        """Return a trial with the summaries of its metrics."""
        return await self.services[Trials].get(self.person, trial_id)


@route("trials/{trial_id}/kill", relayed=True)
class Kill(Guarded):
    """Killing one trial."""

    @needs("write", cross_site="xsrf", action=Action.TRIAL_KILL)
    async def post(self, trial_id: int) -> TrialView:
        """Kill the trial; its experiment continues."""
        return await self.services[Trials].kill(self.person, trial_id)


@route("trials/{trial_id}/metrics", relayed=True)
class Metrics(Guarded):
    """The scalar series of a trial."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: MetricsQuery) -> SeriesList:
        """Return curves, down-sampled so that extremes and the last point stay exact."""
        items, left_out, following = await self.services[Trials].curves(
            self.person,
            trial_id,
            group=query.group,
            names=query.name or None,
            max_points=query.max_points,
            skip=query.skip,
        )
        return SeriesList(items=items, left_out=left_out, next=following)


@route("trials/{trial_id}/values", relayed=True)
class Values(Guarded):
    """The structured values of a trial."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: ValuesQuery) -> ValueList:
        """Return structured values."""
        place = None if query.before is None else query.before.split(".")
        wanted = query.model_dump() | {"before": place and (int(place[0]), int(place[1]))}
        items, older = await self.services[Trials].values(self.person, trial_id, **wanted)
        return ValueList.model_validate({"items": items, "next": older and f"{older[0]}.{older[1]}"})


@route("trials/{trial_id}/logs", relayed=True)
class Logs(Guarded):
    """The output of a trial."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: LogsQuery) -> LogPage:
        """Return log lines in order."""
        items, edges = await self.services[Trials].logs(self.person, trial_id, **query.model_dump())
        return LogPage(items=items, **asdict(edges))


@route("trials/{trial_id}/checkpoints", relayed=True)
class Checkpoints(Guarded):
    """The checkpoints of a trial."""

    @needs("read", cross_site="xsrf")
    async def get(self, trial_id: int, query: CheckpointsQuery) -> CheckpointList:
        """List the committed checkpoints."""
        items, following = await self.services[Trials].checkpoint_page(self.person, trial_id, **query.model_dump())
        return CheckpointList(items=items, next=following)
