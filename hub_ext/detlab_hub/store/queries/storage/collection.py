"""What collection reads and writes of many checkpoints at a time, and the bytes that removals have freed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Table, and_, func, insert, select, update
from sqlalchemy.orm import Session

from detlab_hub.store import values as scalars
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import (
    AllocationRow,
    CheckpointRow,
    ExperimentRow,
    FreedRow,
    MediaRow,
    MetricName,
    MetricPoint,
    MetricSeries,
    RemovalRow,
    TaskNote,
    TaskRow,
    TrackedFileRow,
    TrackedRunRow,
    TrialRow,
    clean_text,
)

_REMOVALS: Table = RemovalRow.__table__
DELETED = "DELETED"


class Kept(NamedTuple):
    """A checkpoint whose files exist, with what collection needs of it."""

    uuid: str
    trial_id: int
    experiment_id: int
    steps_completed: int
    created_at: float
    size: int
    state: str
    since_anew: bool
    """Whether its trial has not begun anew since."""


def kept(s: Session, experiment_id: int) -> list[Kept]:
    """Return the checkpoints of an experiment whose files exist, newest first."""
    query = (
        select(
            CheckpointRow.uuid,
            CheckpointRow.trial_id,
            CheckpointRow.experiment_id,
            CheckpointRow.steps_completed,
            CheckpointRow.created_at,
            CheckpointRow.size,
            CheckpointRow.state,
            CheckpointRow.run >= TrialRow.first_run,
        )
        .join(TrialRow, TrialRow.id == CheckpointRow.trial_id)
        .where(CheckpointRow.experiment_id == experiment_id, CheckpointRow.state != DELETED)
        .order_by(CheckpointRow.created_at.desc(), CheckpointRow.uuid.desc())
    )
    return [Kept(*row) for row in s.execute(query)]


def metrics_of(s: Session, experiment_id: int, metric: str) -> dict[str, float]:
    """Return uuid -> value of a validation metric at the checkpoint's step, of those where it was reported."""
    at_step = and_(MetricPoint.series_id == MetricSeries.id, MetricPoint.step == CheckpointRow.steps_completed)
    query = (
        select(CheckpointRow.uuid, MetricPoint.value, MetricPoint.flag)
        .join(
            MetricSeries, and_(MetricSeries.trial_id == CheckpointRow.trial_id, MetricSeries.group_name == "validation")
        )
        .join(MetricName, and_(MetricName.id == MetricSeries.name_id, MetricName.name == clean_text(metric)))
        .join(MetricPoint, at_step)
        .where(CheckpointRow.experiment_id == experiment_id, CheckpointRow.state != DELETED)
    )
    return {uuid: scalars.join(value, flag) for uuid, value, flag in s.execute(query)}


def mark_deleted(s: Session, rows: Sequence[Kept], now: float, due_at: float) -> None:
    """Mark checkpoints as deleted, to be removed by a task from `due_at` on."""
    known: set[str] = set()
    for part in chunks([row.uuid for row in rows]):
        changes = update(CheckpointRow).where(CheckpointRow.uuid.in_(part)).values(state=DELETED)
        s.execute(changes.execution_options(synchronize_session="fetch"))
        known.update(s.scalars(select(RemovalRow.uuid).where(RemovalRow.uuid.in_(part))))
    for row in rows:
        if row.uuid in known:  # some of its files were to be removed: now all are
            again = s.get_one(RemovalRow, row.uuid)
            again.paths, again.due_at, again.begun_at, again.was = None, due_at, None, row.state
            again.bytes, again.by_task = again.bytes + row.size, True
    fresh = [
        {
            "uuid": row.uuid,
            "paths": None,
            "requested_at": now,
            "due_at": due_at,
            "begun_at": None,
            "was": row.state,
            "bytes": row.size,
            "by_task": True,
            "failure": "",
        }
        for row in rows
        if row.uuid not in known
    ]
    if fresh:
        s.execute(insert(_REMOVALS), fresh)


def due_by_task(s: Session, now: float, experiment_id: int | None = None, limit: int = 500) -> list[RemovalRow]:
    """Return removals that a task is to carry out now, oldest first; of one experiment, or of all."""
    query = select(RemovalRow).where(RemovalRow.due_at <= now, RemovalRow.by_task)
    if experiment_id is not None:
        query = query.join(CheckpointRow, CheckpointRow.uuid == RemovalRow.uuid)
        query = query.where(CheckpointRow.experiment_id == experiment_id)
    return list(s.scalars(query.order_by(RemovalRow.due_at, RemovalRow.uuid).limit(limit)))


def experiments_due(s: Session, now: float) -> list[int]:
    """Return the experiments of which a task is to remove checkpoints or event files now."""
    query = (
        select(CheckpointRow.experiment_id)
        .join(RemovalRow, RemovalRow.uuid == CheckpointRow.uuid)
        .where(RemovalRow.due_at <= now, RemovalRow.by_task)
        .distinct()
    )
    of_events = select(ExperimentRow.id).where(ExperimentRow.event_files_due <= now)
    return sorted({*s.scalars(query), *s.scalars(of_events)})


def ended_early(s: Session, owner: str, name: str, since: float) -> int:
    """Return how many tasks of this name have ended since a time without having completed, after the last that did."""
    query = select(TaskRow.end_reason).where(TaskRow.owner == owner, TaskRow.name == name, TaskRow.created_at >= since)
    found = list(s.scalars(query.where(TaskRow.ended_at.is_not(None)).order_by(TaskRow.created_at.desc()).limit(20)))
    return next((count for count, reason in enumerate(found) if reason == "COMPLETED"), len(found))


def retry(s: Session, experiment_id: int, now: float) -> int:
    """Have the removals of an experiment that have begun or are overdue be tried now; return how many."""
    mine = select(CheckpointRow.uuid).where(CheckpointRow.experiment_id == experiment_id)
    waits = RemovalRow.begun_at.is_not(None) | (RemovalRow.due_at <= now)
    uuids = list(s.scalars(select(RemovalRow.uuid).where(RemovalRow.uuid.in_(mine), waits)))
    for part in chunks(uuids):
        changes = update(RemovalRow).where(RemovalRow.uuid.in_(part)).values(due_at=now, by_task=True, failure="")
        s.execute(changes.execution_options(synchronize_session="fetch"))
    return len(uuids)


def hasten(s: Session, experiment_id: int, now: float) -> None:
    """Have all removals of an experiment be due now, by a task, and for good."""
    mine = select(CheckpointRow.uuid).where(CheckpointRow.experiment_id == experiment_id)
    begun = func.coalesce(RemovalRow.begun_at, now)
    changes = update(RemovalRow).where(RemovalRow.uuid.in_(mine))
    changes = changes.values(due_at=now, begun_at=begun, by_task=True, failure="")
    s.execute(changes.execution_options(synchronize_session="fetch"))


class Left(NamedTuple):
    """Removals of an experiment's checkpoints that have begun and are not done."""

    checkpoints: int
    bytes: int
    failure: str
    """Of one of them; empty: none has failed."""
    due_at: float
    """When the first is tried again."""


def left_of(s: Session, experiment_ids: Sequence[int]) -> dict[int, Left]:
    """Return what is being removed of the checkpoints of some experiments; what can be restored does not count."""
    found = {}
    for part in chunks(list(experiment_ids)):
        size = func.coalesce(func.sum(RemovalRow.bytes), 0)
        query = (
            select(
                CheckpointRow.experiment_id,
                func.count(),
                size,
                func.max(RemovalRow.failure),
                func.min(RemovalRow.due_at),
            )
            .join(RemovalRow, RemovalRow.uuid == CheckpointRow.uuid)
            .where(CheckpointRow.experiment_id.in_(part), RemovalRow.begun_at.is_not(None))
            .group_by(CheckpointRow.experiment_id)
        )
        for key, count, total, failure, due in s.execute(query):
            found[key] = Left(count, int(total), failure or "", due)
    return found


def ran(s: Session, experiment_id: int) -> list[int]:
    """Return the trials of an experiment that were given a place at least once: others have stored nothing."""
    placed = (AllocationRow.experiment_id == experiment_id, AllocationRow.assigned_at.is_not(None))
    query = select(AllocationRow.trial_id).where(AllocationRow.trial_id.is_not(None), *placed).distinct()
    return sorted(trial for trial in s.scalars(query) if trial is not None)


def deleted_files(s: Session, states: Sequence[str]) -> list[int]:
    """Return the experiments in one of these states of which no file is left to remove."""
    waiting = (
        select(RemovalRow.uuid)
        .join(CheckpointRow, CheckpointRow.uuid == RemovalRow.uuid)
        .where(CheckpointRow.experiment_id == ExperimentRow.id)
    )
    logged = (
        select(TrackedFileRow.root)
        .join(TrackedRunRow, TrackedRunRow.id == TrackedFileRow.run_id)
        .where(TrackedRunRow.experiment_id == ExperimentRow.id)
    )
    media = select(MediaRow.id).where(MediaRow.experiment_id == ExperimentRow.id)
    query = select(ExperimentRow.id).where(ExperimentRow.state.in_(list(states)))
    query = query.where(ExperimentRow.event_files_due.is_(None), ~waiting.exists(), ~logged.exists(), ~media.exists())
    return list(s.scalars(query))


def policies_due(s: Session, now: float) -> list[int]:
    """Return the experiments whose policy is to be applied now."""
    return list(s.scalars(select(ExperimentRow.id).where(ExperimentRow.gc_at <= now)))


def collected_by(s: Session, task: TaskRow) -> ExperimentRow | None:
    """Return the experiment whose checkpoints a task removes: the experiment names its task, not it the other."""
    number = task.source.get(TaskNote.GC)
    row = s.get(ExperimentRow, number) if isinstance(number, int) else None
    return row if row is not None and row.gc_task == task.id else None


def read_by(s: Session, task: TaskRow) -> CheckpointRow | None:
    """Return the checkpoint that a task reads, if its owner's: no other may have the keys of its block."""
    noted = task.source.get(TaskNote.READS) or {}
    row = s.get(CheckpointRow, noted["uuid"]) if noted else None
    experiment = None if row is None else s.get(ExperimentRow, row.experiment_id)
    return row if experiment is not None and experiment.owner == task.owner else None


def trash_of(s: Session, uuids: Sequence[str]) -> dict[str, float]:
    """Return uuid -> when its time in the trash is over, of those that can be restored."""
    found: dict[str, float] = {}
    for part in chunks(uuids):
        restorable = and_(RemovalRow.uuid.in_(part), RemovalRow.begun_at.is_(None), RemovalRow.paths.is_(None))
        found.update(
            (uuid, due) for uuid, due in s.execute(select(RemovalRow.uuid, RemovalRow.due_at).where(restorable))
        )
    return found


def being_removed(s: Session, uuids: Sequence[str]) -> dict[str, str]:
    """Return uuid -> why the last attempt failed, or nothing, of those whose files are being removed."""
    found: dict[str, str] = {}
    for part in chunks(uuids):
        begun = and_(RemovalRow.uuid.in_(part), RemovalRow.begun_at.is_not(None))
        found.update(
            (uuid, failure) for uuid, failure in s.execute(select(RemovalRow.uuid, RemovalRow.failure).where(begun))
        )
    return found


def book_freed(s: Session, experiment_id: int, owner: str, freed: int, now: float, *, checkpoints: int = 1) -> None:
    """Add what was removed, and seen to be gone, to what an experiment of a user has freed."""
    row = s.get(FreedRow, (experiment_id, clean_text(owner)))
    if row is None:
        s.add(FreedRow(experiment_id=experiment_id, owner=owner, bytes=freed, count=checkpoints, at=now))
    else:
        row.bytes, row.count, row.at = row.bytes + freed, row.count + checkpoints, now
