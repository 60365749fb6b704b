"""What waits for slots, in the order in which the scheduler looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.taskwire import QueueItem, QueueView
from detlab.schemas.wire import AllocationState
from detlab_hub.core.scheduling import DEFAULT_PRIORITY
from detlab_hub.services.accounting import TRIAL
from detlab_hub.services.callers import Caller
from detlab_hub.services.shell import Shell
from detlab_hub.services.views import Reasons
from detlab_hub.store.tables import AllocationRow, ExperimentRow, TaskRow, TrialRow

LIMIT = 1000
"""Most items of one look: the first so many of all, and the first so many of the caller's."""
SOMEBODY = "somebody else"
"""Stands for a user whom the caller may not know."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One pending allocation, as far as its place needs it."""

    priority: int
    submitted_at: float
    order: int
    allocation_id: str
    owner: str
    kind: str
    name: str
    experiment_id: int | None
    trial_id: int | None
    task_id: str | None
    slots: int
    requested_at: float

    @property
    def rank(self) -> tuple[int, float, int, str]:
        """What the scheduler sorts by."""
        return self.priority, self.submitted_at, self.order, self.allocation_id


class Queue:
    """The one queue of trials and user tasks."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def view(self, caller: Caller) -> QueueView:
        """The queue. Of what the caller may not know (I9) only its place, size and age are told."""
        return QueueView(items=await self._shell.read(lambda s: items(s, caller, self._shell.pending_reasons)))


def items(s: Session, caller: Caller, reasons: Reasons, limit: int = LIMIT) -> list[QueueItem]:
    """The queue as a caller may see it: the first `limit` of all, and the caller's own first `limit`."""
    ordered = waiting(s)
    shown, own = [], 0
    for place, one in enumerate(ordered, 1):
        mine = one.owner == caller.name
        own += mine
        if place <= limit or (mine and own <= limit):
            shown.append(_item(one, place, caller, reasons))
    return shown


def waiting(s: Session) -> Sequence[Waiting]:
    """Everything that waits, in order: priority, submission, order within a submission."""
    query = (
        select(
            AllocationRow.priority,
            ExperimentRow.created_at,
            TaskRow.created_at,
            TrialRow.idx,
            AllocationRow.id,
            AllocationRow.owner,
            ExperimentRow.owner,
            TaskRow.kind,
            ExperimentRow.name,
            TaskRow.name,
            AllocationRow.experiment_id,
            AllocationRow.trial_id,
            AllocationRow.task_id,
            AllocationRow.slots_needed,
            AllocationRow.requested_at,
        )
        .outerjoin(ExperimentRow, ExperimentRow.id == AllocationRow.experiment_id)
        .outerjoin(TrialRow, TrialRow.id == AllocationRow.trial_id)
        .outerjoin(TaskRow, TaskRow.id == AllocationRow.task_id)
        .where(AllocationRow.state == AllocationState.PENDING)
    )
    found = [
        Waiting(
            priority=DEFAULT_PRIORITY if priority is None else priority,
            submitted_at=(submitted if submitted is not None else started) or 0.0,
            order=idx or 0,
            allocation_id=allocation_id,
            owner=owner or of_experiment or "",
            kind=kind or TRIAL,
            name=experiment or task or "",
            experiment_id=experiment_id,
            trial_id=trial_id,
            task_id=task_id,
            slots=slots,
            requested_at=requested_at,
        )
        for (
            priority,
            submitted,
            started,
            idx,
            allocation_id,
            owner,
            of_experiment,
            kind,
            experiment,
            task,
            experiment_id,
            trial_id,
            task_id,
            slots,
            requested_at,
        ) in s.execute(query)
    ]
    return sorted(found, key=lambda one: one.rank)


def _item(one: Waiting, place: int, caller: Caller, reasons: Reasons) -> QueueItem:
    if not caller.sees(one.owner):
        return QueueItem(
            allocation_id=f"place {place}",
            place=place,
            kind=one.kind,
            owner=SOMEBODY,
            slots=one.slots,
            priority=one.priority,
            requested_at=one.requested_at,
        )
    return QueueItem(
        allocation_id=one.allocation_id,
        place=place,
        kind=one.kind,
        owner=one.owner,
        mine=one.owner == caller.name,
        name=one.name,
        experiment_id=one.experiment_id,
        trial_id=one.trial_id,
        task_id=one.task_id,
        slots=one.slots,
        priority=one.priority,
        requested_at=one.requested_at,
        reason=reasons.get(one.allocation_id, ""),
    )
