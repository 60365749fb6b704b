"""Routes of comparisons: trials, experiments and runs from anywhere side by side."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from detlab.schemas.wire.comparison import CodeComparison, RunComparison, RunCurves
from detlab_hub.services.comparison.comparison import RunComparisons
from detlab_hub.web.base import Guarded, PartQuery, RowId
from detlab_hub.web.paths import route
from detlab_hub.web.scopes import needs

_MOST_NAMES = 100
_Name = Annotated[str, Field(max_length=1000)]
_RunName = Annotated[str, Field(min_length=1, max_length=128)]


class RunsQuery(PartQuery):
    """Which runs."""

    trials: list[RowId] = Field(default_factory=list, max_length=1000)
    """Ids of trials; repeat it or separate by commas."""
    experiments: list[RowId] = Field(default_factory=list, max_length=1000)
    """Ids of experiments, for which their best trials stand."""


class RunComparisonQuery(RunsQuery):
    """Which runs, and which of their metrics."""

    runs: list[_RunName] = Field(default_factory=list, max_length=1000)
    """Ids, or keys of one's own, of runs that no cluster started."""
    metric: list[_Name] = Field(default_factory=list, max_length=_MOST_NAMES)
    """Names of metrics; none means all."""


class RunCurvesQuery(PartQuery):
    """Which curves, and how finely."""

    trials: list[RowId] = Field(default_factory=list, max_length=1000)
    """Ids of trials; repeat it or separate by commas."""
    runs: list[_RunName] = Field(default_factory=list, max_length=1000)
    """Ids, or keys of one's own, of runs that no cluster started."""
    group: str | None = Field(None, max_length=200)
    name: list[_Name] = Field(default_factory=list, max_length=_MOST_NAMES)
    """Names of metrics; none means all."""
    max_points: int = Field(500, ge=2, le=10_000)
    """Points a curve is down-sampled to."""


@route("comparison", relayed=True)
class ComparedRuns(Guarded):
    """Runs side by side."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: RunComparisonQuery) -> RunComparison:
        """Compare trials, experiments and runs: hyperparameters, config and metrics; at most 50 of them."""
        return await self.services[RunComparisons].compare(
            self.person, query.trials, query.experiments, query.runs, metrics=query.metric, skip=query.skip
        )


@route("comparison/curves", relayed=True)
class ComparedCurves(Guarded):
    """The curves of runs."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: RunCurvesQuery) -> RunCurves:
        """Return curves of trials and runs, down-sampled so that extremes and the last point stay exact."""
        return await self.services[RunComparisons].curves(
            self.person,
            query.trials,
            query.runs,
            group=query.group,
            names=query.name,
            max_points=query.max_points,
            skip=query.skip,
        )


@route("comparison/code", relayed=True)
class ComparedCode(Guarded):
    """The code of runs."""

    @needs("read", cross_site="xsrf")
    async def get(self, query: RunsQuery) -> CodeComparison:
        """Return the files of the code that differ, with their lines for the first two runs in which they do."""
        return await self.services[RunComparisons].code(self.person, query.trials, query.experiments, skip=query.skip)
