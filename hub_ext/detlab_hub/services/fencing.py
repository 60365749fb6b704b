"""Only the current attempt of a trial may write (I3)."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.errors import StaleAttempt
from detlab.schemas.wire import AllocationState
from detlab_hub.services.callers import TaskCaller
from detlab_hub.store.tables import AllocationRow, TrialRow


def current_attempt(s: Session, task: TaskCaller) -> tuple[AllocationRow, TrialRow]:
    """The rows of a task that may still write.

    Raises:
        StaleAttempt: A newer attempt owns the trial, or this one is over.
    """
    row = s.get(AllocationRow, task.allocation_id)
    trial = s.get(TrialRow, task.trial_id)
    if row is None or trial is None or row.trial_id != task.trial_id:
        raise StaleAttempt(f"allocation {task.allocation_id} does not exist any more")
    if row.run != task.run or trial.run != task.run:
        raise StaleAttempt(f"attempt {task.run} of trial {trial.id} is over: attempt {trial.run} owns the trial now")
    if row.state == AllocationState.TERMINATED:
        raise StaleAttempt(f"attempt {task.run} of trial {trial.id} has ended ({row.exit_reason})")
    return row, trial
