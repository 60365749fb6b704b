"""Runs from elsewhere as people see them: one, a page of them, their curves and their output."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, BinaryIO, Literal

from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab.schemas.wire import LogLine
from detlab.schemas.wire.runs import (
    LastPoint,
    RunBeat,
    RunCurve,
    RunCurveList,
    RunFileList,
    RunFileView,
    RunPoints,
    RunView,
    RunViewList,
)
from detlab_hub.core.rights import Action, right_of
from detlab_hub.core.tracking.writers import run_ids_of_key
from detlab_hub.services.base.access import person, things, tracked_thing
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.logs.log_search import LogSearch
from detlab_hub.services.tracking.access import TrackedRun, place_named, run_for
from detlab_hub.services.tracking.artifacts import ArtifactPlace, RootKind, RunArtifacts
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.facts import GROUP_TAG, JOB_TYPE_TAG, NOTES_TAG, RunFacts, loaded, run_facts
from detlab_hub.services.tracking.logging import RunLogging
from detlab_hub.services.views import pages
from detlab_hub.store import downsample
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.queries.tracking import points, runs, writers
from detlab_hub.store.tables import ProjectRow, TrackedRunRow, WorkspaceRow

MOST_POINTS = 10_000
SHORTEST_START = 4
"""Characters of an id or key that may stand for all of it."""
BEAT_PERIOD = 2.0
"""Least seconds between two beats."""
READ_POINTS = 20_000
"""Of one curve; of a longer one each nth is read."""
_POINT_BYTES, _CURVE_BYTES, MOST_CURVES, FILES_READ = 64, 200, 500, 2000
_GOES_ON = frozenset({"RUNNING", "SCHEDULED"})
_SHOWN_APART = frozenset({GROUP_TAG, JOB_TYPE_TAG, NOTES_TAG})


class RunViews(Service):
    """Use cases of reading runs."""

    def __init__(self, context: ServiceContext, logging: RunLogging, artifacts: RunArtifacts) -> None:
        super().__init__(context)
        self._logging = logging
        self._artifacts = artifacts
        self._search = LogSearch(context)

    @classmethod
    def made_for(cls, services: ServiceLookup) -> RunViews:
        """Make the one of a master."""
        return cls(services.context, services[RunLogging], services[RunArtifacts])

    async def get(self, caller: Caller, named: str) -> RunView:
        """Return a run by its id, or by the key of one of the caller's own.

        Raises:
            NotFound: There is none for the caller.
        """
        return await self._context.read(lambda s: run_view(s, caller, found_run(s, caller, named).id))

    async def list(
        self,
        caller: Caller,
        project: str,
        *,
        group: str,
        job_type: str,
        status: str,
        deleted: bool,
        limit: int,
        skip: int,
    ) -> RunViewList:
        """Return a page of the runs of a project, or of the caller's own in all projects, the newest first.

        With `deleted` only those that are marked so, and otherwise none of them.

        Raises:
            NotFound: There is no such project for the caller.
        """

        def look(s: Session) -> RunViewList:
            tags = {key: value for key, value in ((GROUP_TAG, group), (JOB_TYPE_TAG, job_type)) if value}
            place, owner = _project(s, caller, project), "" if project else person(caller).name
            ids = runs.page(s, place, owner, tags, status=status, deleted=deleted, skip=skip, limit=limit)
            items, last = pages.of_rows(
                s, TrackedRunRow, ids, limit, lambda rows: [pages.brief(one) for one in _views(s, caller, rows)]
            )
            return RunViewList(items=items, next=None if last is None else skip + len(items))

        return await self._context.look(caller.name, look)

    async def points(self, caller: Caller, named: str, name: str, *, limit: int, after: str) -> RunPoints:
        """Return a page of the values of a metric, by step and time.

        Raises:
            BadRequest: `after` is none of a page.
            NotFound: There is no such run for the caller.
        """
        run_id = await self._context.read(lambda s: found_run(s, caller, named).id)
        page = await self._logging.history(caller, run_id, name, min(limit, MOST_POINTS), after)
        return RunPoints(
            name=name,
            steps=[one.step for one in page.points],
            values=[one.value for one in page.points],
            times=[one.time_ms / 1000 for one in page.points],
            next=page.after,
        )

    async def curves(
        self, caller: Caller, named: str, *, names: Sequence[str] | None, most: int, skip: int
    ) -> RunCurveList:
        """Return a part of the curves of a run, thinned to `most` points each; of a trial, none: it has its own.

        Raises:
            NotFound: There is no such run for the caller.
        """

        def look(s: Session) -> RunCurveList:
            run_id = found_run(s, caller, named).id
            fitting = max(1, pages.PAGE_BYTES // (_POINT_BYTES * most + _CURVE_BYTES))
            found = points.metrics_from(s, run_id, names, skip, min(fitting, MOST_CURVES) + 1)
            shown = found[: min(fitting, MOST_CURVES)]
            items = [thinned(points.curve(s, series, name, max(READ_POINTS, most)), most) for series, name in shown]
            return RunCurveList(items=items, next=skip + len(shown) if len(found) > len(shown) else None)

        return await self._context.look(caller.name, look)

    async def files(self, caller: Caller, named: str, skip: int) -> RunFileList:
        """Return a part of the files of a run, by path.

        Raises:
            NotFound: There is no such run for the caller.
        """

        def look(s: Session) -> RunFileList:
            rows = runs.files_from(s, found_run(s, caller, named).id, skip, FILES_READ + 1)
            views = [RunFileView(path=row.path, size=row.size, updated_at=row.updated_at) for row in rows[:FILES_READ]]
            part = pages.within(views)
            return RunFileList(items=part, next=skip + len(part) if len(part) < len(rows) else None)

        return await self._context.look(caller.name, look)

    async def open_file(self, caller: Caller, named: str, path: str) -> tuple[BinaryIO, int]:
        """Open a file of a run; return it with its size in bytes.

        Raises:
            NotFound: There is no such run or file for the caller.
        """
        run_id = await self._context.read(lambda s: found_run(s, caller, named).id)
        return await self._artifacts.open(caller, ArtifactPlace(run_id, RootKind.RUN, path))

    async def follow(self, caller: Caller, named: str, after: int = 0) -> AsyncIterator[Sequence[LogLine]]:
        """Yield batches of a run's output after a line; end when the run has ended and all of it was sent.

        Raises:
            NotFound: There is no such run for the caller, or no longer.
        """
        known = await self._context.read(lambda s: found_run(s, caller, named).id)

        def ended(s: Session) -> bool:
            row = found_run(s, caller, known).row  # checked before the lines are read: a withdrawn right ends it
            return row is None or row.status not in _GOES_ON

        async for batch in self._context.follow_lines(caller.name, known, ended, after):
            yield batch

    async def beats(self, caller: Caller, named: str) -> AsyncIterator[Sequence[RunBeat]]:
        """Yield a beat whenever a run has logged something, at most one in `BEAT_PERIOD`; end when the run has.

        Raises:
            NotFound: There is no such run for the caller, or no longer.
        """
        context = self._context
        known = await context.read(lambda s: found_run(s, caller, named).id)

        def look(s: Session) -> RunBeat:
            row = found_run(s, caller, known).row
            status = "DELETED" if row is None or row.deleted_at is not None else row.status
            return RunBeat(status=status, heard_at=writers.heard(s, [known]).get(known))

        with context.wakeups.listen(("logs", known)) as news:
            while not context.stopped:
                news.clear()
                async with context.catching_up.of(caller.name):
                    beat = await context.read(look)
                yield [beat]
                if beat.status not in _GOES_ON:
                    return
                await news.wait()
                await asyncio.sleep(BEAT_PERIOD)

    async def output(
        self, caller: Caller, named: str, *, regex: str | None = None, context: int = 0, **wanted: Any
    ) -> tuple[Sequence[LogLine], lines.Edges]:
        """Return lines of a run's output (`wanted`: fields of `lines.Wanted`), and where to continue.

        Raises:
            NotFound: There is no such run for the caller.
        """
        which = lines.Wanted(**wanted)
        return await self._search.page(caller.name, lambda s: found_run(s, caller, named).id, which, regex, context)


def thinned(found: points.StoredCurve, most: int) -> RunCurve:
    """Return a curve with the points that are chosen of it: extremes and the last one among them."""
    kept = downsample.choose([one.value for one in found.points], max(most, downsample.MIN_POINTS))
    shown = [found.points[place] for place in kept.tolist()]
    return RunCurve(
        name=found.key,
        steps=[one.step for one in shown],
        values=[one.value for one in shown],
        times=[one.time_ms / 1000 for one in shown],
        total=found.total,
    )


def found_run(s: Session, caller: Caller, named: str, action: Action | None = None) -> TrackedRun:
    """Return a run by its id, or one of the caller's own by its key, or by how its id or key begins.

    Raises:
        BadRequest: Several of the caller's own begin so.
        Forbidden: They may read it, and not do that.
        NotFound: There is none for the caller: not of this id that they may read, nor of this key.
    """
    try:
        return run_for(s, caller, named, action)
    except NotFound as error:
        owner = person(caller).name
        mine = [one for one in run_ids_of_key(owner, named) if s.get(TrackedRunRow, one) is not None]
        if not mine:
            mine = _beginning(s, owner, named) or _beginning(s, owner, named.removeprefix("run-"))
        if not mine:
            error.hint = error.hint or "det run list"
            raise
        if len(mine) > 1:
            raise BadRequest(f"several of your runs begin with {named[:80]}", hint="det run list") from error
        return run_for(s, caller, mine[0], action)


def _beginning(s: Session, owner: str, start: str) -> list[str]:
    """Return two runs of a user at most that begin so; those without a name are called `run-` and their beginning."""
    return runs.own_beginning(s, owner, start, 2) if len(start) >= SHORTEST_START else []


def run_view(s: Session, caller: Caller, run_id: str) -> RunView:
    """Return a run that the caller may read."""
    found = loaded(s, [run_id])
    return _view(caller, found[0], run_facts(s, found)[0], _beside(s, caller, found))


def _project(s: Session, caller: Caller, project: str) -> int | None:
    if not project:
        return None
    place = place_named(s, caller, project)
    if place is None or place.project is None:
        raise NotFound(f"there is no project {project[:300]!r}", hint="det project list WORKSPACE")
    return place.project.id


def _views(s: Session, caller: Caller, rows: Sequence[TrackedRunRow]) -> Sequence[RunView]:
    found = loaded(s, [row.id for row in rows])
    beside = _beside(s, caller, found)
    return [_view(caller, one, facts, beside) for one, facts in zip(found, run_facts(s, found), strict=True)]


def _may(s: Session, caller: Caller, one: TrackedRun) -> Literal["read", "write", "own"]:
    if one.trial is not None and one.experiment is not None:
        return right_of(person(caller), things(s, caller, [one.experiment])[one.experiment.id]).wire
    assert one.row is not None
    return right_of(person(caller), tracked_thing(s, caller, one.row)).wire


def _beside(s: Session, caller: Caller, found: Sequence[TrackedRun]) -> Mapping[str, Any]:
    places = {one.project.id: one.project for one in found if one.project is not None}
    ids = [one.id for one in found]
    return {
        "workspaces": {key: s.get_one(WorkspaceRow, row.workspace_id) for key, row in places.items()},
        "heard": writers.heard(s, ids),
        "may": {one.id: _may(s, caller, one) for one in found},
        "summary": {key: values.get(runs.SUMMARY, {}) for key, values in runs.values_of(s, ids).items()},
    }


def _own_key(caller: Caller, one: TrackedRun, facts: RunFacts) -> str:
    """Return what the script calls a run; empty for others' runs, and for tags that a client has changed."""
    key, owner = facts.tags.get(runs.KEY_TAG, ""), person(caller).name
    return key if one.owner == owner and one.id in run_ids_of_key(owner, key) else ""


def _view(caller: Caller, one: TrackedRun, facts: RunFacts, beside: Mapping[str, Any]) -> RunView:
    project: ProjectRow | None = one.project
    workspace = None if project is None else beside["workspaces"][project.id]
    return RunView(
        id=one.id,
        key=_own_key(caller, one, facts),
        name=facts.name,
        owner=one.owner,
        status=facts.status,
        end_reason=one.row.end_reason if one.row is not None else "",
        workspace="" if workspace is None else f"{workspace.owner}/{workspace.name}",
        project="" if project is None else project.name,
        project_id=None if project is None else project.id,
        experiment_id=None if one.experiment is None else one.experiment.id,
        group=facts.tags.get(GROUP_TAG, ""),
        job_type=facts.tags.get(JOB_TYPE_TAG, ""),
        notes=facts.tags.get(NOTES_TAG, ""),
        started_at=facts.started_ms / 1000,
        ended_at=None if facts.ended_ms is None else facts.ended_ms / 1000,
        heard_at=beside["heard"].get(one.id),
        deleted=facts.deleted,
        config=dict(facts.params),
        tags={key: value for key, value in facts.tags.items() if key not in _SHOWN_APART},
        may=beside["may"][one.id],
        metrics={
            point.key: LastPoint(value=point.value, step=point.step, time=point.time_ms / 1000)
            for point in facts.metrics
        },
        summary={key: json.loads(text) for key, text in beside["summary"].get(one.id, {}).items()},
    )
