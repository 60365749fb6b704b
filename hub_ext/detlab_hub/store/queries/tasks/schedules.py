"""Schedules of users: in pages, and those that have something to do now."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, and_, delete, func, or_, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import ExperimentState, TrialState
from detlab.schemas.wire.notebooks.schedules import ScheduleState
from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import ExperimentRow, ScheduleRow, TaskRow, clean_text

_ENDED_EXPERIMENTS = [state.value for state in ExperimentState if state.terminal] + [ExperimentState.DELETING.value]
_ENDED_TASKS = [state.value for state in TrialState if state.terminal]


def page(s: Session, viewer: Person, limit: int, after: int | None, owner: str | None = None) -> list[int]:
    """Return the ids of the schedules that a user may see, the oldest first."""
    query = select(ScheduleRow.id).where(visible(ObjectKind.SCHEDULE, viewer, owner=ScheduleRow.owner))
    if after is not None:
        query = query.where(ScheduleRow.id > after)
    if owner is not None:
        query = query.where(ScheduleRow.owner == clean_text(owner))
    return list(s.scalars(query.order_by(ScheduleRow.id).limit(limit)))


def count_of(s: Session, owner: str) -> int:
    """Count the schedules of a user that may still start something."""
    mine = (ScheduleRow.owner == clean_text(owner), ScheduleRow.state != ScheduleState.DONE.value)
    return s.scalar(select(func.count()).select_from(ScheduleRow).where(*mine)) or 0


def counts_by_owner(s: Session, viewer: Person) -> dict[str, int]:
    """Return the same by user, of those whose usage the viewer may read."""
    query = select(ScheduleRow.owner, func.count()).where(ScheduleRow.state != ScheduleState.DONE.value)
    query = query.where(visible(ObjectKind.USER, viewer, owner=ScheduleRow.owner)).group_by(ScheduleRow.owner)
    return {row[0]: row[1] for row in s.execute(query)}


def known(s: Session, owner: str, key: str | None) -> ScheduleRow | None:
    """Return the schedule that this owner's request with this key has made; None without a key, too."""
    if not key:
        return None
    mine = (ScheduleRow.owner == clean_text(owner), ScheduleRow.key == clean_text(key))
    return s.scalar(select(ScheduleRow).where(*mine))


def due(s: Session, now: float, limit: int, without: Collection[int] = ()) -> list[int]:
    """Return the active schedules that are due, or what they wait for has ended, the longest due first.

    Args:
        s: A session.
        now: Seconds since the epoch.
        limit: Most of each of the two.
        without: Leave these out; they are few.
    """
    waits = or_(ScheduleRow.after_experiment.is_not(None), ScheduleRow.after_task.is_not(None))
    at = select(ScheduleRow.id).where(ScheduleRow.state == ScheduleState.ACTIVE.value)
    for some in chunks(sorted(without)):
        at = at.where(ScheduleRow.id.not_in(some))
    by_clock = at.where(ScheduleRow.next_at <= now, ~waits).order_by(ScheduleRow.next_at, ScheduleRow.id)
    found = list(s.scalars(by_clock.limit(limit)))
    later = at.where(waits, or_(ScheduleRow.next_at.is_(None), ScheduleRow.next_at <= now), _ended())
    return found + list(s.scalars(later.order_by(ScheduleRow.id).limit(limit)))


def _ended() -> ColumnElement[bool]:
    """Return the condition that nothing goes on any more of what a schedule waits for."""
    experiment = select(ExperimentRow.id).where(
        ExperimentRow.id == ScheduleRow.after_experiment, ExperimentRow.state.not_in(_ENDED_EXPERIMENTS)
    )
    task = select(TaskRow.id).where(TaskRow.id == ScheduleRow.after_task, TaskRow.state.not_in(_ENDED_TASKS))
    return and_(~experiment.correlate(ScheduleRow).exists(), ~task.correlate(ScheduleRow).exists())


def purge(s: Session, before: float, limit: int) -> int:
    """Remove schedules that were done before some time, at most so many; return how many."""
    row = ScheduleRow
    latest = [row.created_at, func.coalesce(row.last_started_at, 0.0), func.coalesce(row.noted_at, 0.0)]
    old = select(row.id).where(row.state == ScheduleState.DONE.value, *(at < before for at in latest))
    ids = list(s.scalars(old.order_by(row.id).limit(limit)))
    for some in chunks(ids):
        s.execute(delete(row).where(row.id.in_(some)).execution_options(synchronize_session=False))
    return len(ids)


def states_of_runs(s: Session, ids: Sequence[str]) -> dict[str, str]:
    """Return the states of some tasks that are still there, by their ids."""
    found: dict[str, str] = {}
    for some in chunks(ids):
        query = select(TaskRow.id, TaskRow.state).where(TaskRow.id.in_(some))
        found.update((one.id, one.state) for one in s.execute(query))
    return found


def failed(s: Session, limit: int) -> list[int]:
    """Return the schedules whose newest run has failed, of which their owners were not told."""
    query = select(ScheduleRow.id).join(TaskRow, TaskRow.id == ScheduleRow.last_task)
    told = or_(ScheduleRow.told_task.is_(None), ScheduleRow.told_task != ScheduleRow.last_task)
    return list(
        s.scalars(query.where(TaskRow.state == TrialState.ERROR.value, told).order_by(ScheduleRow.id).limit(limit))
    )
