"""Who holds GPUs, who was told that they do nothing, and what the profiler of trials says of theirs (`gpu_util_*`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState
from detlab_hub.store.tables import (
    AllocationRow,
    ExperimentRow,
    MetricName,
    MetricPoint,
    MetricSeries,
    TaskNote,
    TaskRow,
    TrialRow,
)

GROUP, NAME = "gpu", "gpu_util_%"
_LOOKED_AT = 500
"""Newest points of a GPU that are looked at."""
_LEAST = 3
"""Points within the time, for one to be sure."""
GPUS_IDLE = "its GPUs are idle"
"""How the warning of a trial begins whose GPUs do nothing."""
_HELD = AllocationRow.state == AllocationState.RUNNING, AllocationRow.slots_needed > 0


class Holding(NamedTuple):
    """A running allocation with slots."""

    id: str
    owner: str
    pool: str
    run: int
    slots: int
    started_at: float | None
    experiment_id: int | None
    trial_id: int | None
    task_id: str | None


def holding(s: Session, holder: int | str | None = None) -> list[Holding]:
    """List the running allocations with slots; only those of an experiment, by its number, or of a user task."""
    query = (
        select(AllocationRow, ExperimentRow.owner, TaskRow.owner)
        .outerjoin(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
        .outerjoin(TaskRow, TaskRow.id == AllocationRow.task_id)
        .where(*_HELD)
        .order_by(AllocationRow.id)
    )
    if holder is not None:
        of = AllocationRow.experiment_id if isinstance(holder, int) else AllocationRow.task_id
        query = query.where(of == holder)
    return [
        Holding(
            row.id,
            row.owner or of_experiment or of_task or "",
            row.pool,
            row.run,
            row.slots_needed,
            row.started_at,
            row.experiment_id,
            row.trial_id,
            row.task_id,
        )
        for row, of_experiment, of_task in s.execute(query)
    ]


def running_of(s: Session, experiment_id: int | None) -> list[str]:
    """List the running allocations of an experiment; none of none."""
    if experiment_id is None:
        return []
    query = select(AllocationRow.id).where(AllocationRow.experiment_id == experiment_id)
    return list(s.scalars(query.where(AllocationRow.state == AllocationState.RUNNING)))


def marked_idle(s: Session) -> set[str]:
    """Return the running allocations whose trial or task says of itself that its GPUs are idle."""
    tasks = select(AllocationRow.id, TaskRow.source).join(TaskRow, TaskRow.id == AllocationRow.task_id).where(*_HELD)
    trials = select(AllocationRow.id, TrialRow.warnings).join(TrialRow, TrialRow.id == AllocationRow.trial_id)
    found = {key for key, source in s.execute(tasks) if TaskNote.IDLE_GPUS in source}
    return found | {
        key for key, warnings in s.execute(trials.where(*_HELD)) if any(one.startswith(GPUS_IDLE) for one in warnings)
    }


class IdleTrial(NamedTuple):
    """A running trial whose GPUs all were at 0 % for a time."""

    trial_id: int
    since: float
    """Since when all points are 0, as far as it was looked."""


def idle_trials(s: Session, now: float, seconds: float, trial_ids: Collection[int]) -> list[IdleTrial]:
    """Return those of some trials whose GPUs were all at 0 % for so many seconds, until their last report.

    Left out are a trial that has reported nothing for as long, whose numbers say nothing about now, and one that does
    not report all of its GPUs.
    """
    columns = (AllocationRow.trial_id, AllocationRow.run, AllocationRow.slots_needed)
    query = select(*columns).where(
        AllocationRow.state == AllocationState.RUNNING,
        AllocationRow.slots_needed > 0,
        AllocationRow.started_at <= now - seconds,
    )
    found = []
    wanted = set(trial_ids)
    for trial_id, run, slots in s.execute(query.order_by(AllocationRow.trial_id)):
        if trial_id not in wanted:
            continue
        series = _gpus(s, trial_id)
        if len(series) < slots or any(last != 0 for _, last in series):
            continue
        idle = [_since(s, key, run, now, seconds) for key, _ in series]
        known = [at for at in idle if at is not None]
        if len(known) == len(idle) and now - max(known) >= seconds:
            found.append(IdleTrial(trial_id, max(known)))
    return found


def _gpus(s: Session, trial_id: int) -> list[tuple[int, float | None]]:
    query = select(MetricSeries.id, MetricSeries.last).join(MetricName, MetricName.id == MetricSeries.name_id)
    query = query.where(MetricSeries.trial_id == trial_id, MetricSeries.group_name == GROUP, MetricName.name.like(NAME))
    return [(key, last) for key, last in s.execute(query)]


def _since(s: Session, series_id: int, run: int, now: float, seconds: float) -> float | None:
    """Return since when a GPU is at 0 % in this attempt; None if that is not sure."""
    query = select(MetricPoint.time, MetricPoint.value).where(
        MetricPoint.series_id == series_id, MetricPoint.run == run
    )
    points = s.execute(query.order_by(MetricPoint.step.desc()).limit(_LOOKED_AT)).all()
    if not points or now - points[0][0] >= seconds:
        return None
    zeros = []
    for at, value in points:
        if value != 0:
            break
        zeros.append(at)
    return zeros[-1] if len(zeros) >= _LEAST else None
