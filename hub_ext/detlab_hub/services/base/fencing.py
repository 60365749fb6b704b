"""Only the current attempt of a trial or a user task may write (I3)."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import Conflict, StaleAttempt
from detlab.schemas.wire import AllocationState
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.store.session import StoreSession
from detlab_hub.store.tables import AllocationRow, TaskRow, TrialRow


def current_attempt(s: Session, task: TaskCaller) -> tuple[AllocationRow, TrialRow]:
    """Load the rows of a trial's task that may still write.

    Raises:
        StaleAttempt: A newer attempt owns the trial, or this one is over.
        Conflict: The task is not a trial.
    """
    row, holder = current_holder(s, task)
    if not isinstance(holder, TrialRow):
        raise Conflict(f"task {holder.id} is a {holder.kind}: only trials report metrics and commit checkpoints")
    return row, holder


def current_holder(s: Session, task: TaskCaller) -> tuple[AllocationRow, TrialRow | TaskRow]:
    """Load the rows of a task, a trial's or a user task, that may still write.

    Raises:
        StaleAttempt: A newer attempt owns it, or this one is over.
    """
    if task.task_id is None and isinstance(s, StoreSession):
        s.get_ahead(AllocationRow, task.allocation_id, TrialRow, task.trial_id)
    row = s.get(AllocationRow, task.allocation_id)
    holder: TrialRow | TaskRow | None
    if task.task_id is not None:
        holder, name = s.get(TaskRow, task.task_id), f"task {task.task_id}"
    else:
        holder, name = s.get(TrialRow, task.trial_id), f"trial {task.trial_id}"
    if row is None or holder is None or row.trial_id != task.trial_id or row.task_id != task.task_id:
        raise StaleAttempt(f"allocation {task.allocation_id} does not exist any more")
    if row.run != task.run or holder.run != task.run:
        raise StaleAttempt(f"attempt {task.run} of {name} is over: attempt {holder.run} owns it now")
    if row.state == AllocationState.TERMINATED:
        raise StaleAttempt(f"attempt {task.run} of {name} has ended ({row.exit_reason})")
    return row, holder


def caller_of(row: AllocationRow) -> TaskCaller:
    """Return the current attempt of an allocation as a caller."""
    return TaskCaller(row.id, row.trial_id, row.experiment_id, row.run, row.task_id, row.owner)
