"""Runs: made, read, changed, searched. In a trial the first that its code makes is the trial itself."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_
from sqlalchemy.orm import Session

from detlab.errors import Conflict
from detlab_hub.core.rights import Action
from detlab_hub.core.tracking.search import RUN_FIELDS
from detlab_hub.services.alerts.evaluation import WithAlertRules
from detlab_hub.services.alerts.of_runs import tell_of_end
from detlab_hub.services.base.access import person, workspace_for
from detlab_hub.services.base.callers import Caller, TaskCaller
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.threads import user_of
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.tracking import in_trials
from detlab_hub.services.tracking.access import (
    TrackedPlace,
    Tracker,
    made_place,
    place_for,
    readable_places,
    run_for,
    run_id_of,
    task_may_not,
)
from detlab_hub.services.tracking.experiments import BadRequest, checked_tags, read_filter
from detlab_hub.services.tracking.facts import NAME_TAG, PARENT_TAG, RunFacts, loaded, run_facts
from detlab_hub.store.bounded import bounded
from detlab_hub.store.queries.tracking import runs, search
from detlab_hub.store.tables import TrackedRunRow, TrialRow, clean_text

STATUSES = ("RUNNING", "SCHEDULED", "FINISHED", "FAILED", "KILLED")
NAME_CHARS, USER_CHARS = 500, 256
VALUES_CHARS, MOST_VALUES = 2 * 1024 * 1024, 5000
"""Parameters and tags of one run."""
MOST_PLACES = 200
"""Experiments of one search."""
PAGE_RUNS = 1000
MOST_SKIPPED = 1_000_000
SECONDS = 10.0
"""After which a search is given up."""


@dataclass(frozen=True)
class NewRun:
    """What a client says of a run that it begins. Times in milliseconds."""

    place: str
    name: str = ""
    user: str = ""
    started_ms: int = 0
    tags: Mapping[str, str] | None = None


@dataclass(frozen=True)
class RunPage:
    """A page of runs, and how many to skip for the next; None: it is the last."""

    items: Sequence[RunFacts]
    next: int | None = None


class TrackedRuns(WithAlertRules):
    """Use cases of runs."""

    async def create(self, caller: Tracker, wanted: NewRun) -> RunFacts:
        """Begin a run.

        In a trial the first one without a parent that an attempt begins is the trial, and all others are its children.

        Raises:
            BadRequest: A tag cannot be one.
            Conflict: The experiment gets its runs by its own trials, or it is archived.
            Forbidden: The caller is no editor of the workspace.
            NotFound: There is no such experiment for the caller.
        """
        tags = checked_tags(wanted.tags or {})
        name = (wanted.name or tags.pop(NAME_TAG, ""))[:NAME_CHARS]
        tags.pop(NAME_TAG, None)

        def create(unit: UnitOfWork) -> RunFacts:
            if isinstance(caller, TaskCaller):
                row = _in_trial(unit, caller, tags, name)
            else:
                row = _from_elsewhere(unit, caller, wanted, name)
            row.said_user = row.said_user or wanted.user[:USER_CHARS]
            unit.session.flush()
            runs.put_values(unit.session, row.id, runs.TAG, tags)
            check_size(unit.session, row)
            if row.is_trial:
                in_trials.mirror(unit, row)
            return run_facts(unit.session, loaded(unit.session, [row.id]))[0]

        return await self._context.write(create)

    async def get(self, caller: Tracker, run_id: str) -> RunFacts:
        """Return a run with its parameters, tags and the newest value of each metric.

        Raises:
            Forbidden: The caller is a trial, and it is not of its experiment.
            NotFound: There is none for the caller.
        """
        return await self._context.read(lambda s: run_facts(s, [run_for(s, caller, run_id)])[0])

    async def update(
        self, caller: Tracker, run_id: str, *, status: str | None, ended_ms: int | None, name: str | None
    ) -> RunFacts:
        """Change a run: also one that has ended. What a client says of the end of a trial does not end it.

        Raises:
            BadRequest: There is no such status.
            Forbidden: The caller may not log into it.
            NotFound: There is none for the caller.
        """
        if status is not None and status not in STATUSES:
            raise BadRequest(f"{status[:40]!r} is no status of a run: {', '.join(STATUSES)}")

        def update(unit: UnitOfWork) -> RunFacts:
            row = writable(unit, caller, run_id)
            before = row.status
            if status is not None and not row.is_trial:
                row.status = status
                row.ended_ms = ended_ms if ended_ms is not None else row.ended_ms
                tell_of_end(unit, rules, row, before)
            if name:
                row.name = name[:NAME_CHARS]
            row.updated_at = unit.now
            unit.outbox.wake_logs.add(row.id)
            unit.session.flush()
            return run_facts(unit.session, loaded(unit.session, [run_id]))[0]

        rules = await self._evaluation.rules()
        return await self._context.write(update)

    async def set_deleted(self, caller: Tracker, run_id: str, deleted: bool) -> None:
        """Mark a run as deleted, or restore it: searches leave it out, and nothing of it is removed.

        Raises:
            Conflict: It is a trial.
            Forbidden: It is not the caller's to delete.
            NotFound: There is none for the caller.
        """

        def mark(unit: UnitOfWork) -> None:
            found = run_for(unit.session, caller, run_id)
            if found.trial is not None or found.row is None:
                raise Conflict(
                    f"run {run_id} is trial {found.trial.id if found.trial else ''}, which goes with its experiment"
                )
            run_for(unit.session, caller, run_id, Action.RUN_DELETE)
            found.row.deleted_at = unit.now if deleted else None
            unit.outbox.wake_logs.add(found.row.id)

        await self._context.write(mark)

    async def search(
        self,
        caller: Tracker,
        places: Sequence[str],
        *,
        where: str,
        order: Sequence[str],
        deleted: bool | None,
        limit: int,
        skip: int,
    ) -> RunPage:
        """Return a page of the runs of some experiments; those that the caller may not read have none.

        Args:
            caller: Who asks.
            places: Ids of experiments.
            where: The filter.
            order: Its keys.
            deleted: Only deleted ones, or none of them; None: both.
            limit: Most runs.
            skip: Runs of the pages before.

        Raises:
            BadRequest: There are too many experiments.
            ConfigError: The filter or the order cannot be read.
        """
        clauses, by = read_filter(where, order, RUN_FIELDS)
        if len(places) > MOST_PLACES:
            raise BadRequest(f"a search is in {MOST_PLACES} experiments at most, not in {len(places)}")
        most = min(limit, PAGE_RUNS)

        def look(s: Session) -> RunPage:
            sources = _sources(s, readable_places(s, caller, places), search.name_ids(s, [*clauses, *by]), deleted)
            with bounded(s, SECONDS, "the search", "Search in fewer experiments, or by tags and parameters alone."):
                ids = search.ids(s, sources, clauses, by, skip=min(skip, MOST_SKIPPED), limit=most)
            items = _page(s, ids[:most])
            more = len(ids) > len(items)
            return RunPage(items, skip + len(items) if more and items else None)

        return await self._context.look(user_of(caller), look)


def check_size(s: Session, row: TrackedRunRow) -> None:
    """Check that a run has no more parameters and tags than it may.

    Raises:
        BadRequest: It has.
    """
    count, chars = runs.size_of_values(s, row.id)
    if count > MOST_VALUES or chars > VALUES_CHARS:
        raise BadRequest(
            f"run {row.id} would have {count:,} parameters and tags with {chars:,} characters;"
            f" {MOST_VALUES:,} with {VALUES_CHARS:,} are the most",
            hint="Log long texts as files: mlflow.log_text, mlflow.log_dict.",
        )


def writable(unit: UnitOfWork, caller: Tracker, run_id: str) -> TrackedRunRow:
    """Return the row of a run that the caller may log into; that of a trial is made when it is needed first.

    Raises:
        Forbidden: They may not.
        NotFound: There is none for the caller.
    """
    found = run_for(unit.session, caller, run_id, Action.RUN_LOG)
    if found.row is not None:
        return found.row
    assert found.trial is not None
    return _row_of(unit, found.trial, found.owner)


def _row_of(unit: UnitOfWork, trial: TrialRow, owner: str) -> TrackedRunRow:
    row = TrackedRunRow(
        id=run_id_of(trial.id),
        owner=owner,
        owner_groups=unit.experiment(trial.experiment_id).owner_groups,
        experiment_id=trial.experiment_id,
        trial_id=trial.id,
        is_trial=True,
        created_at=unit.now,
        updated_at=unit.now,
        started_ms=round((trial.started_at or trial.created_at) * 1000),
    )
    unit.session.add(row)
    unit.session.flush()
    return row


def _in_trial(unit: UnitOfWork, task: TaskCaller, tags: Mapping[str, str], name: str) -> TrackedRunRow:
    """Return the run that a trial's code begins."""
    if not task.trial_id:
        raise task_may_not("log runs, if it is not a trial's")
    s = unit.session
    attempt, trial = current_attempt(s, task)
    row = runs.of_trial(s, trial.id) or _row_of(unit, trial, attempt.owner)
    parent = tags.get(PARENT_TAG)
    if parent is not None:
        run_for(s, task, parent, Action.RUN_LOG)
    elif row.attempt < attempt.run:
        row.attempt, row.updated_at = attempt.run, unit.now
        row.name = clean_text(name) or row.name
        return row
    child = _new(unit, row.owner, row.owner_groups, name)
    child.experiment_id, child.trial_id, child.attempt = trial.experiment_id, trial.id, attempt.run
    child.started_ms = round(unit.now * 1000)
    s.add(child)
    s.flush()
    if parent is None:
        runs.put_values(s, child.id, runs.TAG, {PARENT_TAG: row.id})
    return child


def _from_elsewhere(unit: UnitOfWork, caller: Caller, wanted: NewRun, name: str) -> TrackedRunRow:
    s = unit.session
    place = made_place(unit, caller, place_for(s, caller, wanted.place, Action.RUN_CREATE))
    return add_run(unit, caller, place, name, wanted.started_ms)


def add_run(
    unit: UnitOfWork, caller: Caller, place: TrackedPlace, name: str, started_ms: int, run_id: str = ""
) -> TrackedRunRow:
    """Add a run from elsewhere to a project.

    Args:
        unit: The transaction.
        caller: Whose it is.
        place: A project that exists.
        name: Empty: one is made.
        started_ms: As its client says.
        run_id: Empty: it is drawn.

    Raises:
        Conflict: The project is archived.
        Forbidden: The caller may not record runs there.
    """
    assert place.project is not None
    assert place.workspace is not None
    if place.project.archived_at is not None or place.workspace.archived_at is not None:
        gone = place.project if place.project.archived_at is not None else place.workspace
        kind = "project" if gone is place.project else "workspace"
        raise Conflict(
            f"{kind} {gone.name!r} is archived (to MLflow's clients: deleted): it takes no new runs",
            hint=f"det {kind} unarchive, or restore it by a client of MLflow",
        )
    workspace_for(unit.session, caller, str(place.workspace.id), Action.RUN_CREATE)
    row = _new(unit, person(caller).name, sorted(caller.groups), name, run_id)
    row.project_id, row.workspace_id = place.project.id, place.workspace.id
    row.started_ms = started_ms
    unit.session.add(row)
    return row


def _new(unit: UnitOfWork, owner: str, groups: Sequence[str], name: str, run_id: str = "") -> TrackedRunRow:
    run_id = run_id or uuid.uuid4().hex
    return TrackedRunRow(
        id=run_id,
        owner=owner,
        owner_groups=list(groups),
        name=clean_text(name) or f"run-{run_id[:8]}",
        created_at=unit.now,
        updated_at=unit.now,
    )


def _sources(
    s: Session, places: Sequence[TrackedPlace], names: Mapping[str, int], deleted: bool | None
) -> list[search.RunSource]:
    row = TrackedRunRow
    projects = {one.project.id: one.project for one in places if one.project is not None}
    experiments = {one.experiment.id: one.experiment for one in places if one.experiment is not None}
    if deleted is not None:
        projects = {key: one for key, one in projects.items() if deleted or one.archived_at is None}
    shown: Any = row.deleted_at.is_not(None) if deleted else row.deleted_at.is_(None)
    found: list[search.RunSource] = []
    if projects:
        gone = [key for key, one in projects.items() if one.archived_at is not None]
        condition: Any = row.project_id.in_(list(projects))
        if deleted is not None:
            condition = and_(condition, shown | row.project_id.in_(gone) if gone else shown)
        found.append(search.TrackedRunSource(names, condition))
    if experiments:
        condition = and_(row.experiment_id.in_(list(experiments)), row.is_trial.is_(False))
        found.append(search.TrackedRunSource(names, condition if deleted is None else and_(condition, shown)))
    if experiments and not deleted:
        postgres = s.get_bind().dialect.name == "postgresql"
        searched = {one.metric for one in experiments.values()}
        metric = next(iter(searched)) if len(searched) == 1 else ""
        condition = TrialRow.experiment_id.in_(list(experiments))
        found.append(search.TrialRunSource(names, condition, postgres, metric))
    return found


PAGE_BYTES = 4 * 1024 * 1024
"""Of the runs of a page, about; the first is there in any case."""
_FIRST = 10
"""Runs that are read at first: one may have megabytes of parameters and tags. More at a time while they are small."""


def _page(s: Session, ids: Sequence[str]) -> list[RunFacts]:
    """Return what is said of the first runs that fit a page, one at least."""
    fitting: list[RunFacts] = []
    left, begin, size = PAGE_BYTES, 0, _FIRST
    while begin < len(ids):
        before = left
        for one in run_facts(s, loaded(s, ids[begin : begin + size])):
            left -= _size_of(one)
            if left < 0 and fitting:
                return fitting
            fitting.append(one)
        begin += size
        if before - left < PAGE_BYTES // 8:
            size *= 2
    return fitting


def _size_of(one: RunFacts) -> int:
    texts = sum(len(key) + len(value) + 30 for values in (one.params, one.tags) for key, value in values.items())
    return 500 + texts + 100 * len(one.metrics)
