"""Maximum times (`resources.max_time`): a task that has run for its maximum is stopped for good.

The running time of an attempt counts from the start in its row: a master that was down stops it when it is back.
A trial stops at its next checkpoint and is killed after its `preemption_timeout`; a user task is ended immediately.
"""

from __future__ import annotations

import logging

from sqlalchemy import bindparam, or_, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.core.lifecycle.allocation import PreemptReason
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import AllocationRow, TrialRow

_log = logging.getLogger(__name__)
_OVER = PreparedStatement(
    select(AllocationRow.id)
    .outerjoin(TrialRow, TrialRow.id == AllocationRow.trial_id)
    .where(
        AllocationRow.state == AllocationState.RUNNING,
        AllocationRow.max_time.is_not(None),
        AllocationRow.started_at + AllocationRow.max_time <= bindparam("now"),
        or_(AllocationRow.preempt_reason.is_(None), AllocationRow.preempt_reason != PreemptReason.PAUSE.value),
        or_(AllocationRow.trial_id.is_(None), TrialRow.state == TrialState.ACTIVE.value),
    )
    .order_by(AllocationRow.id)
)
"""Run at each tick, so prepared once. Allocations that are leaving for good, or for a pause, are not included."""


def due(s: Session, now: float) -> list[str]:
    """Return the allocations that have reached their maximum time and were not asked to stop yet.

    This includes one that is leaving for another node, as it must not restart there; not one whose trial its user has
    paused.
    """
    return [row[0] for row in _OVER.all(s, {"now": now})]


def act(unit: UnitOfWork, allocation_id: str) -> None:
    """Ask an allocation whose time is up to leave; one that was asked already is left alone."""
    row = unit.allocation(allocation_id)
    if row is None or row.state != AllocationState.RUNNING:
        return
    unit.holder(row).time_is_up(unit, row)
