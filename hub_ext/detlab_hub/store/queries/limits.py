"""Users' usage of limits: jobs that have not ended, tasks without slots, uploads of a day."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState, ExperimentState, TrialState
from detlab_hub.core.rights import ObjectKind, Person
from detlab_hub.store.queries.rights import visible
from detlab_hub.store.tables import (
    AllocationRow,
    BundleRow,
    BundleUpload,
    ExperimentRow,
    MetricName,
    MetricSeries,
    OutputRow,
    StructuredValue,
    TaskRow,
    clean_text,
)

_LIVE_EXPERIMENTS = [state.value for state in ExperimentState if not state.terminal]
_LIVE_TASKS = [state.value for state in TrialState if not state.terminal]
_OVER = (AllocationState.PENDING, AllocationState.TERMINATED)


def live_jobs(s: Session, owner: str) -> int:
    """Return how many experiments and tasks of a user have not ended."""
    name = clean_text(owner)
    of_experiments = (ExperimentRow.owner == name, ExperimentRow.state.in_(_LIVE_EXPERIMENTS))
    of_tasks = (TaskRow.owner == name, TaskRow.state.in_(_LIVE_TASKS))
    return (s.scalar(select(func.count()).select_from(ExperimentRow).where(*of_experiments)) or 0) + (
        s.scalar(select(func.count()).select_from(TaskRow).where(*of_tasks)) or 0
    )


def live_jobs_by_owner(s: Session, viewer: Person) -> dict[str, int]:
    """Return how many experiments and tasks have not ended, by user; of those whose usage the viewer may read."""
    found: dict[str, int] = {}
    for table, states in ((ExperimentRow, _LIVE_EXPERIMENTS), (TaskRow, _LIVE_TASKS)):
        query = select(table.owner, func.count()).where(table.state.in_(states)).group_by(table.owner)
        for owner, count in s.execute(query.where(visible(ObjectKind.USER, viewer, owner=table.owner))):
            found[owner] = found.get(owner, 0) + count
    return found


def zero_slot_tasks_by_owner(s: Session, viewer: Person) -> dict[str, int]:
    """Return how many tasks and trials without slots run, by user; of those whose usage the viewer may read."""
    query = select(AllocationRow.owner, func.count()).group_by(AllocationRow.owner)
    query = query.where(AllocationRow.state.not_in(_OVER), AllocationRow.slots_needed == 0)
    query = query.where(visible(ObjectKind.USER, viewer, owner=AllocationRow.owner))
    return {row[0]: row[1] for row in s.execute(query)}


def uploaded_since(s: Session, owner: str, since: float) -> float:
    """Return the bytes of code and outputs that a user has uploaded and that still exist."""
    name = clean_text(owner)
    code = select(func.coalesce(func.sum(BundleRow.size), 0)).join(
        BundleUpload, BundleUpload.digest == BundleRow.digest
    )
    outputs = select(func.coalesce(func.sum(OutputRow.size), 0)).join(TaskRow, TaskRow.id == OutputRow.task_id)
    return float(
        (s.scalar(code.where(BundleUpload.name == name, BundleUpload.created_at >= since)) or 0)
        + (s.scalar(outputs.where(TaskRow.owner == name, OutputRow.updated_at >= since)) or 0)
    )


def metric_names(s: Session, trial_id: int) -> dict[str, set[str]]:
    """Return the names of the metrics of a trial by group, structured ones included."""
    found: dict[str, set[str]] = {}
    for table in (MetricSeries, StructuredValue):
        query = select(table.group_name, MetricName.name).join(MetricName, MetricName.id == table.name_id)
        for group, name in s.execute(query.where(table.trial_id == trial_id).distinct()):
            found.setdefault(group, set()).add(name)
    return found
