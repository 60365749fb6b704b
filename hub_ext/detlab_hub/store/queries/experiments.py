"""Experiments: pages, counts of their trials, owners, and removal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Row,
    Select,
    Text,
    bindparam,
    delete,
    func,
    or_,
    select,
    type_coerce,
    union_all,
)
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries import rights
from detlab_hub.store.queries.logs import lines as logs
from detlab_hub.store.queries.metrics.lookup import forget
from detlab_hub.store.queries.notify import alerts
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.queries.tracking import runs
from detlab_hub.store.tables import (
    AllocationRow,
    ArtifactLinkRow,
    BookmarkRow,
    CheckpointRow,
    DeletedArtifactLinkRow,
    EventRow,
    ExperimentMetric,
    ExperimentRow,
    GrantRow,
    Idempotency,
    MediaRow,
    MetricPoint,
    MetricSeries,
    PartRow,
    ReferenceRow,
    RemovalRow,
    Rollup,
    SearcherJournal,
    StructuredValue,
    TrackedRunRow,
    TrialRow,
    clean_text,
)

_TRIALS = PreparedStatement(
    select(TrialRow.state, func.count())
    .where(TrialRow.experiment_id == bindparam("experiment"))
    .group_by(TrialRow.state)
)
"""Trials of one experiment by their state."""


def page(
    s: Session,
    limit: int = 100,
    before: int | None = None,
    state: str | None = None,
    owner: str | None = None,
    name: str | None = None,
    viewer: Person | None = None,
    archived: str = "any",
    workspace_id: int | None = None,
    project_id: int | None = None,
) -> list[int]:
    """Return the ids of experiments, newest first.

    Args:
        s: A session.
        limit: Most of them; a full page's last id is the next page's `before`.
        before: Only ids smaller than this.
        state: Only this state.
        owner: Only this owner's.
        name: Only names that contain this.
        viewer: Only what this user may read.
        archived: `no`: leave archived ones out; `only`: nothing else; `any`: both.
        workspace_id: Only those that lie in this workspace.
        project_id: Only those of this project.
    """
    simple = state is None and owner is None and project_id is None and not name
    conditions = _conditions(before, state, owner, name, archived, workspace_id, project_id)
    if viewer is None:
        return list(s.scalars(_newest(conditions, limit)))
    places = rights.places_of(s, viewer) if workspace_id is None else []
    if not 0 < len(places) <= MOST_PLACES:
        return list(s.scalars(_newest([*conditions, rights.visible_experiments(viewer)], limit)))
    # The newest of each workspace by its index: of all together, a database would sort whatever the viewer may read.
    table = ExperimentRow
    theirs = rights.visible(ObjectKind.EXPERIMENT, viewer, owner=table.owner, experiment_id=table.id)
    found = list(s.scalars(_newest([*conditions, theirs], limit)))
    if simple:
        return _with_places(s, found, places, limit, before, archived)
    inside = [_newest([*conditions, ExperimentRow.workspace_id == place], limit) for place in places]
    found += s.scalars(union_all(*(select(one.subquery().c.id) for one in inside)))
    return sorted({*found}, reverse=True)[:limit]


def _conditions(
    before: int | None,
    state: str | None,
    owner: str | None,
    name: str | None,
    archived: str,
    workspace_id: int | None = None,
    project_id: int | None = None,
) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if before is not None:
        found.append(ExperimentRow.id < before)
    return found + narrowed(state, owner, name, archived, workspace_id, project_id)


def narrowed(
    state: str | None = None,
    owner: str | None = None,
    name: str | None = None,
    archived: str = "any",
    workspace_id: int | None = None,
    project_id: int | None = None,
) -> list[ColumnElement[bool]]:
    """Return the conditions on experiments of a list; see `page`."""
    found: list[ColumnElement[bool]] = []
    if state is not None:
        found.append(ExperimentRow.state == state)
    if owner is not None:
        found.append(ExperimentRow.owner == clean_text(owner))
    if archived != "any":
        column = ExperimentRow.archived_at
        found.append(column.is_(None) if archived == "no" else column.is_not(None))
    if name:
        found.append(ExperimentRow.name.icontains(clean_text(name), autoescape=True))
    if workspace_id is not None:
        found.append(ExperimentRow.workspace_id == workspace_id)
    if project_id is not None:
        found.append(ExperimentRow.project_id == project_id)
    return found


def _with_places(
    s: Session, found: list[int], places: Sequence[int], limit: int, before: int | None, archived: str
) -> list[int]:
    """Add what lies in workspaces to a page: of each what is newer than the last of the page so far."""
    given = {"before": LAST if before is None else before, "most": limit}
    for number, place in enumerate(places):
        after = found[limit - 1] if len(found) >= limit else 0
        if after and number >= EACH:  # few are newer: one statement for all that are left
            here = [*_conditions(before, None, None, None, archived), ExperimentRow.id > after]
            inside = _newest([*here, ExperimentRow.workspace_id.in_(places[number:])], limit)
            return sorted({*found, *s.scalars(inside)}, reverse=True)[:limit]
        if newer := _newest_in(archived).all(s, {**given, "place": place, "after": after}):
            found = sorted({*found, *(row[0] for row in newer)}, reverse=True)[:limit]
    return found


EACH = 6
"""Workspaces that are looked into by a statement each, before the others together."""


MOST_PLACES = 200
"""Workspaces of a viewer that are looked into one by one."""


LAST = 2**62
"""Beyond all ids."""


@cache
def _newest_in(archived: str) -> PreparedStatement:
    """Make the statement for the newest experiments of one workspace, beside the filter that nearly all lists have."""
    table = ExperimentRow
    query = select(table.id).where(table.workspace_id == bindparam("place"))
    query = query.where(table.id < bindparam("before"), table.id > bindparam("after"))
    if archived != "any":
        query = query.where(table.archived_at.is_(None) if archived == "no" else table.archived_at.is_not(None))
    return PreparedStatement(query.order_by(table.id.desc()).limit(bindparam("most")))


def _newest(conditions: Sequence[ColumnElement[bool]], limit: int) -> Select[int]:
    return select(ExperimentRow.id).where(*conditions).order_by(ExperimentRow.id.desc()).limit(limit)


def names(s: Session, experiment_ids: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Return the name and the owner of experiments, by their ids."""
    found: dict[int, tuple[str, str]] = {}
    for part in chunks(list(experiment_ids)):
        query = select(ExperimentRow.id, ExperimentRow.name, ExperimentRow.owner).where(ExperimentRow.id.in_(part))
        found.update((row.id, (row.name, row.owner)) for row in s.execute(query))
    return found


def trial_counts(s: Session, experiment_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Return experiment -> trial state -> count; an experiment without trials has an empty dict."""
    if len(experiment_ids) == 1:
        s.flush()
        return {experiment_ids[0]: {row[0]: row[1] for row in _TRIALS.all(s, {"experiment": experiment_ids[0]})}}
    found: dict[int, dict[str, int]] = {experiment_id: {} for experiment_id in experiment_ids}
    for part in chunks(list(found)):
        query = (
            select(TrialRow.experiment_id, TrialRow.state, func.count())
            .where(TrialRow.experiment_id.in_(part))
            .group_by(TrialRow.experiment_id, TrialRow.state)
        )
        for experiment_id, state, count in s.execute(query):
            found[experiment_id][state] = count
    return found


def running_counts(s: Session, experiment_ids: Sequence[int], states: Sequence[str]) -> dict[int, int]:
    """Return experiment -> how many of its allocations are in one of `states`."""
    if len(experiment_ids) == 1:
        s.flush()
        number: int = _in_states(frozenset(states)).scalar(s, {"experiment": experiment_ids[0]})
        return {experiment_ids[0]: number}
    found = dict.fromkeys(experiment_ids, 0)
    for part in chunks(list(found)):
        query = (
            select(AllocationRow.experiment_id, func.count())
            .where(AllocationRow.experiment_id.in_(part), AllocationRow.state.in_(list(states)))
            .group_by(AllocationRow.experiment_id)
        )
        for experiment_id, count in s.execute(query):
            if experiment_id is not None:
                found[experiment_id] = count
    return found


def waiting_elsewhere(s: Session, experiment_ids: Sequence[int]) -> dict[int, str]:
    """Return experiment -> what the first of its trials that was handed to a batch system waits for there."""
    found: dict[int, str] = {}
    for part in chunks(experiment_ids):
        query = (
            select(AllocationRow.experiment_id, AllocationRow.stage_message)
            .where(
                AllocationRow.experiment_id.in_(part),
                AllocationRow.state == AllocationState.ASSIGNED,
                AllocationRow.stage_message != "",
            )
            .order_by(AllocationRow.assigned_at, AllocationRow.id)
        )
        for experiment_id, message in s.execute(query):
            if experiment_id is not None:
                found.setdefault(experiment_id, message)
    return found


def asked_counts(s: Session, experiment_ids: Sequence[int]) -> dict[int, int]:
    """Return experiment -> how many of its trials users are evaluating by hand."""
    found = dict.fromkeys(experiment_ids, 0)
    for part in chunks(list(found)):
        here = TrialRow.experiment_id.in_(part), TrialRow.state == TrialState.ACTIVE.value
        query = select(TrialRow.experiment_id, func.count()).where(*here, TrialRow.asked_at.is_not(None))
        found.update((row[0], row[1]) for row in s.execute(query.group_by(TrialRow.experiment_id)))
    return found


@cache
def _in_states(states: frozenset[str]) -> PreparedStatement:
    """Make the statement that counts an experiment's allocations in these states: each is a value of it."""
    in_one = or_(*(AllocationRow.state == state for state in sorted(states)))
    of_one = AllocationRow.experiment_id == bindparam("experiment")
    return PreparedStatement(select(func.count()).select_from(AllocationRow).where(of_one, in_one))


def delete_rows(s: Session, experiment_id: int, limit: int = 50_000) -> bool:
    """Remove an experiment with everything that belongs to it, up to `limit` points or log lines per call.

    Returns:
        Whether it is removed; False: call again, in another transaction (the writer is never held for long).
    """
    forget(s)
    trial_ids = list(s.scalars(select(TrialRow.id).where(TrialRow.experiment_id == experiment_id)))
    left = limit
    for trial_id in trial_ids:
        left -= _delete_bulk(s, trial_id, left)
        if left <= 0:
            return False
    mine = select(AllocationRow.id).where(AllocationRow.experiment_id == experiment_id)
    s.execute(delete(PartRow).where(PartRow.allocation_id.in_(mine)))
    saved = select(CheckpointRow.uuid).where(CheckpointRow.experiment_id == experiment_id)
    s.execute(delete(RemovalRow).where(RemovalRow.uuid.in_(saved)))
    s.execute(delete(BookmarkRow).where(BookmarkRow.uuid.in_(saved)))
    s.execute(delete(ReferenceRow).where(ReferenceRow.uuid.in_(saved)))
    logged = select(TrackedRunRow.id).where(TrackedRunRow.experiment_id == experiment_id)
    s.execute(delete(CheckpointRow).where(CheckpointRow.run_id.in_(logged)))
    runs.delete_of_experiment(s, experiment_id)
    alerts.forget_experiment(s, experiment_id)
    for table in (
        EventRow,
        MediaRow,
        ArtifactLinkRow,
        DeletedArtifactLinkRow,
        CheckpointRow,
        AllocationRow,
        SearcherJournal,
        ExperimentMetric,
        Idempotency,
        GrantRow,
    ):
        s.execute(delete(table).where(table.experiment_id == experiment_id))
    for part in chunks(trial_ids):
        s.execute(delete(StructuredValue).where(StructuredValue.trial_id.in_(part)))
        s.execute(delete(MetricSeries).where(MetricSeries.trial_id.in_(part)))
        s.execute(delete(TrialRow).where(TrialRow.id.in_(part)))
    s.execute(delete(ExperimentRow).where(ExperimentRow.id == experiment_id))
    return True


def _delete_bulk(s: Session, trial_id: int, limit: int) -> int:
    """Remove points, then log lines of a trial, at most `limit`; return how many."""
    removed = 0
    for series in s.scalars(
        select(MetricSeries).where(MetricSeries.trial_id == trial_id, MetricSeries.count > 0)
    ).all():
        last = s.scalar(
            select(MetricPoint.step)
            .where(MetricPoint.series_id == series.id)
            .order_by(MetricPoint.step)
            .limit(1)
            .offset(limit - removed - 1)
        )
        query = delete(MetricPoint).where(MetricPoint.series_id == series.id)
        whole = last is None or series.last_step is None or last >= series.last_step
        result = s.execute(query if whole else query.where(MetricPoint.step <= last))
        removed += int(getattr(result, "rowcount", 0))
        s.execute(delete(Rollup).where(Rollup.series_id == series.id))
        if whole:
            s.delete(series)
        if removed >= limit:
            s.flush()
            return removed
    s.flush()
    return removed + logs.remove(s, trial_id, limit - removed)


def journal_page(
    s: Session, experiment_id: int, after: int, limit: int, *, acts: bool = False
) -> list[Row[tuple[int, float | None, Any, Any]]]:
    """Return (seq, at, event, decisions) of the events after one, in order; `acts`: only those that have an author."""
    query = (
        select(SearcherJournal.seq, SearcherJournal.at, SearcherJournal.event, SearcherJournal.decisions)
        .where(SearcherJournal.experiment_id == experiment_id, SearcherJournal.seq > after)
        .order_by(SearcherJournal.seq)
    )
    if not acts:
        return list(s.execute(query.limit(limit)))
    # A hyperparameter may have that name, too.
    named = s.execute(query.where(type_coerce(SearcherJournal.event, Text).contains('"author"')))
    return list(islice((row for row in named if row.event.get("author")), limit))


def journal_decisions(s: Session, experiment_id: int, limit: int) -> list[tuple[float, list[dict[str, Any]]]]:
    """Return (time, decisions) of the newest events on which the search decided something."""
    query = (
        select(SearcherJournal.at, SearcherJournal.decisions)
        .where(SearcherJournal.experiment_id == experiment_id, SearcherJournal.at.is_not(None))
        .where(SearcherJournal.decisions != [])
        .order_by(SearcherJournal.seq.desc())
        .limit(limit)
    )
    return [(at, decisions) for at, decisions in s.execute(query) if at is not None]


def journal_length(s: Session, experiment_id: int) -> int:
    """Return the number of the newest event, 0 if there is none."""
    return s.scalar(select(func.max(SearcherJournal.seq)).where(SearcherJournal.experiment_id == experiment_id)) or 0
