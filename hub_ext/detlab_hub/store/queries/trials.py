"""Trials and their allocations."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Row, bindparam, func, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import TrialState
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.queries.statements import chunks
from detlab_hub.store.tables import AllocationRow, TrialRow

_NEWEST = (
    select(AllocationRow.trial_id, func.max(AllocationRow.run).label("run"))
    .where(AllocationRow.trial_id.in_(bindparam("trials", expanding=True)))
    .group_by(AllocationRow.trial_id)
    .subquery()
)
_NEWEST_OF_ONE = PreparedStatement(
    select(AllocationRow.id)
    .where(AllocationRow.trial_id == bindparam("trial"))
    .order_by(AllocationRow.run.desc())
    .limit(1)
)
_LATEST = select(AllocationRow).join(
    _NEWEST, (_NEWEST.c.trial_id == AllocationRow.trial_id) & (_NEWEST.c.run == AllocationRow.run)
)
"""The statement is made once: streams run it at every read."""


def stopping_of(s: Session, experiment_id: int, request_ids: Collection[str]) -> dict[str, tuple[int, str]]:
    """Return request id -> (trial, why it was stopped)."""
    found: dict[str, tuple[int, str]] = {}
    for part in chunks(list(request_ids)):
        query = select(TrialRow.request_id, TrialRow.id, TrialRow.stop_evidence).where(
            TrialRow.experiment_id == experiment_id, TrialRow.request_id.in_(part)
        )
        found.update((request_id, (key, why)) for request_id, key, why in s.execute(query))
    return found


def of_experiment(s: Session, experiment_id: int) -> list[TrialRow]:
    """Load the trials of an experiment, in the order of their creation."""
    return list(s.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.idx)))


def next_index(s: Session, experiment_id: int) -> int:
    """Return the `idx` of the next trial to be created."""
    newest = s.scalar(select(func.max(TrialRow.idx)).where(TrialRow.experiment_id == experiment_id))
    return 0 if newest is None else int(newest) + 1


def latest_allocations(s: Session, trial_ids: Sequence[int]) -> dict[int, AllocationRow]:
    """Return trial -> its newest allocation, for those that have one."""
    found: dict[int, AllocationRow] = {}
    if len(trial_ids) == 1:
        key = _NEWEST_OF_ONE.scalar(s, {"trial": trial_ids[0]})
        newest = None if key is None else s.get(AllocationRow, key)
        return {} if newest is None else {trial_ids[0]: newest}
    for part in chunks(trial_ids):
        rows = s.scalars(_LATEST, {"trials": list(part)})
        found.update((row.trial_id, row) for row in rows if row.trial_id is not None)
    return found


def on_slots(s: Session, experiment_id: int, time: float) -> set[int]:
    """Return the trials of an experiment that held slots at a time."""
    query = select(AllocationRow.trial_id).where(
        AllocationRow.experiment_id == experiment_id,
        AllocationRow.assigned_at <= time,
        AllocationRow.ended_at.is_(None) | (AllocationRow.ended_at > time),
    )
    return {trial_id for trial_id in s.scalars(query) if trial_id is not None}


def attempts(s: Session, trial_id: int, limit: int = 100) -> list[AllocationRow]:
    """Return the newest attempts of a trial that have started, oldest first."""
    query = select(AllocationRow).where(AllocationRow.trial_id == trial_id, AllocationRow.started_at.is_not(None))
    return list(reversed(s.scalars(query.order_by(AllocationRow.run.desc()).limit(limit)).all()))


def started_attempts(s: Session, trial_ids: Sequence[int]) -> list[Row[Any]]:
    """Return (trial_id, run, agent_id, slots, started_at, ended_at) of the attempts that have started."""
    found: list[Row[Any]] = []
    for part in chunks(trial_ids):
        query = select(
            AllocationRow.trial_id,
            AllocationRow.run,
            AllocationRow.agent_id,
            AllocationRow.slots,
            AllocationRow.started_at,
            AllocationRow.ended_at,
        ).where(AllocationRow.trial_id.in_(part), AllocationRow.started_at.is_not(None))
        found.extend(s.execute(query))
    return found


def seconds_worked(s: Session, trial_ids: Sequence[int]) -> dict[int, float]:
    """Return how many seconds the attempts of trials ran that are over; nothing of a trial without such."""
    found: dict[int, float] = {}
    for part in chunks(trial_ids):
        query = (
            select(AllocationRow.trial_id, func.sum(AllocationRow.ended_at - AllocationRow.started_at))
            .where(AllocationRow.trial_id.in_(part))
            .where(AllocationRow.started_at.is_not(None), AllocationRow.ended_at.is_not(None))
            .group_by(AllocationRow.trial_id)
        )
        for trial_id, seconds in s.execute(query):
            found[int(trial_id or 0)] = max(0.0, float(seconds or 0.0))
    return found


_TIMES = PreparedStatement(
    select(AllocationRow.started_at, AllocationRow.ended_at).where(
        AllocationRow.trial_id == bindparam("trial"), AllocationRow.started_at.is_not(None)
    )
)


def seconds_run(s: Session, trial_id: int, now: float) -> float:
    """Return how many seconds the attempts of a trial have run until now, without the time in the queue."""
    return sum((max(0.0, (ended or now) - started) for started, ended in _TIMES.all(s, {"trial": trial_id})), 0.0)


def first_failed(s: Session, experiment_id: int) -> TrialRow | None:
    """Return the trial of an experiment that failed first."""
    failed = select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.state == "ERROR")
    return s.scalar(failed.order_by(TrialRow.ended_at, TrialRow.id).limit(1))


def prepared(s: Session, experiment_id: int) -> tuple[str, ...]:
    """Return the request ids of trials that have a point and were never handed out or started, in their order."""
    row = TrialRow
    waiting = row.asked_at.is_(None), row.run == 0, row.steps_completed == 0, ~row.point_due
    over = [one.value for one in TrialState if one.terminal]
    query = select(row.request_id).where(row.experiment_id == experiment_id, row.state.not_in(over), *waiting)
    s.flush()
    return tuple(s.scalars(query.order_by(row.idx)))


def any_judged(s: Session, experiment_id: int) -> bool:
    """Whether the search could use a report of one of its trials: those whose report it could not are condemned."""
    condemned = [TrialState.ERROR.value, TrialState.STOPPING_ERROR.value]
    query = select(TrialRow.id).where(
        TrialRow.experiment_id == experiment_id, TrialRow.searcher_metric_seen, TrialRow.state.not_in(condemned)
    )
    s.flush()
    return s.scalar(query.limit(1)) is not None


def first_ids(s: Session, experiment_id: int, limit: int) -> list[int]:
    """Return the ids of the first trials of an experiment."""
    return list(
        s.scalars(select(TrialRow.id).where(TrialRow.experiment_id == experiment_id).order_by(TrialRow.id).limit(limit))
    )


def ends_without_number(s: Session, experiment_id: int) -> tuple[int, int]:
    """Return how many completed trials have values of the metric, and how many of these end with NaN or infinity."""
    no_numbers = {float("nan"), float("inf"), float("-inf")}
    last = TrialRow.latest_validation
    query = select(func.count(), func.count().filter(last.in_(no_numbers))).where(
        TrialRow.experiment_id == experiment_id, TrialRow.state == "COMPLETED", last.is_not(None)
    )
    counted, without = s.execute(query).one()
    return counted, without
