"""Runs from elsewhere as people see them: one, a page of them, their curves and their output."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from detlab.errors import NotFound
from detlab.schemas.wire import LogLine
from detlab.schemas.wire.runs import LastPoint, RunPoints, RunView, RunViewList
from detlab_hub.core.rights import Action
from detlab_hub.core.tracking.writers import run_id_of_key
from detlab_hub.services.base.access import person
from detlab_hub.services.base.callers import Caller
from detlab_hub.services.base.context import Service, ServiceContext, ServiceLookup
from detlab_hub.services.logs.log_search import LogSearch
from detlab_hub.services.tracking.access import TrackedRun, place_named, run_for
from detlab_hub.services.tracking.experiments import BadRequest
from detlab_hub.services.tracking.facts import GROUP_TAG, JOB_TYPE_TAG, NOTES_TAG, RunFacts, loaded, run_facts
from detlab_hub.services.tracking.logging import RunLogging
from detlab_hub.services.views import pages
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.queries.tracking import runs, writers
from detlab_hub.store.tables import ProjectRow, TrackedRunRow, WorkspaceRow

MOST_POINTS = 10_000
SHORTEST_START = 4
"""Characters of an id or key that may stand for all of it."""
_SHOWN_APART = frozenset({GROUP_TAG, JOB_TYPE_TAG, NOTES_TAG})


class RunViews(Service):
    """Use cases of reading runs."""

    def __init__(self, context: ServiceContext, logging: RunLogging) -> None:
        super().__init__(context)
        self._logging = logging
        self._search = LogSearch(context)

    @classmethod
    def made_for(cls, services: ServiceLookup) -> RunViews:
        """Make the one of a master."""
        return cls(services.context, services[RunLogging])

    async def get(self, caller: Caller, named: str) -> RunView:
        """Return a run by its id, or by the key of one of the caller's own.

        Raises:
            NotFound: There is none for the caller.
        """
        return await self._context.read(lambda s: run_view(s, caller, found_run(s, caller, named).id))

    async def list(
        self, caller: Caller, project: str, *, group: str, job_type: str, status: str, limit: int, skip: int
    ) -> RunViewList:
        """Return a page of the runs of a project, or of the caller's own in all projects, the newest first.

        Raises:
            NotFound: There is no such project for the caller.
        """

        def look(s: Session) -> RunViewList:
            tags = {key: value for key, value in ((GROUP_TAG, group), (JOB_TYPE_TAG, job_type)) if value}
            place, owner = _project(s, caller, project), "" if project else person(caller).name
            ids = runs.page(s, place, owner, tags, status=status, skip=skip, limit=limit)
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

    async def output(
        self, caller: Caller, named: str, *, regex: str | None = None, context: int = 0, **wanted: Any
    ) -> tuple[Sequence[LogLine], lines.Edges]:
        """Return lines of a run's output (`wanted`: fields of `lines.Wanted`), and where to continue.

        Raises:
            NotFound: There is no such run for the caller.
        """
        which = lines.Wanted(**wanted)
        return await self._search.page(caller.name, lambda s: found_run(s, caller, named).id, which, regex, context)


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
        mine = [run_id_of_key(owner, named)]
        if s.get(TrackedRunRow, mine[0]) is None:
            mine = runs.own_beginning(s, owner, named, 2) if len(named) >= SHORTEST_START else []
        if not mine:
            error.hint = error.hint or "det run list"
            raise
        if len(mine) > 1:
            raise BadRequest(f"several of your runs begin with {named[:80]}", hint="det run list") from error
        return run_for(s, caller, mine[0], action)


def run_view(s: Session, caller: Caller, run_id: str) -> RunView:
    """Return a run that the caller may read."""
    found = loaded(s, [run_id])
    return _view(caller, found[0], run_facts(s, found)[0], _beside(s, found))


def _project(s: Session, caller: Caller, project: str) -> int | None:
    if not project:
        return None
    place = place_named(s, caller, project)
    if place is None or place.project is None:
        raise NotFound(f"there is no project {project[:300]!r}", hint="det project list WORKSPACE")
    return place.project.id


def _views(s: Session, caller: Caller, rows: Sequence[TrackedRunRow]) -> Sequence[RunView]:
    found = loaded(s, [row.id for row in rows])
    beside = _beside(s, found)
    return [_view(caller, one, facts, beside) for one, facts in zip(found, run_facts(s, found), strict=True)]


def _beside(s: Session, found: Sequence[TrackedRun]) -> Mapping[str, Any]:
    places = {one.project.id: one.project for one in found if one.project is not None}
    ids = [one.id for one in found]
    return {
        "workspaces": {key: s.get_one(WorkspaceRow, row.workspace_id) for key, row in places.items()},
        "heard": writers.heard(s, ids),
        "summary": {key: values.get(runs.SUMMARY, {}) for key, values in runs.values_of(s, ids).items()},
    }


def _own_key(caller: Caller, one: TrackedRun, facts: RunFacts) -> str:
    """Return what the script calls a run; empty for others' runs, and for tags that a client has changed."""
    key, owner = facts.tags.get(runs.KEY_TAG, ""), person(caller).name
    return key if one.owner == owner and run_id_of_key(owner, key) == one.id else ""


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
        metrics={
            point.key: LastPoint(value=point.value, step=point.step, time=point.time_ms / 1000)
            for point in facts.metrics
        },
        summary={key: json.loads(text) for key, text in beside["summary"].get(one.id, {}).items()},
    )
