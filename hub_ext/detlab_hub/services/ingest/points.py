"""The hyperparameters of a trial that was launched without: they are drawn when its job runs and asks for them.

Each of its nodes asks; the first has the search draw. All of it is in the journal of the search and in rows, so that
whoever asks again, also a master that was restarted, gets the same.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab.schemas.wire import PointReply
from detlab_hub.core.lifecycle.allocation import AllocationKillRequested
from detlab_hub.core.searchers import TrialPlaced
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.fencing import current_attempt
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.lifecycle.transitions import tell_search
from detlab_hub.store.tables import TrialRow


def ask(unit: UnitOfWork, task: TaskCaller) -> PointReply:
    """Have the search draw the trial's point. Repeating it changes nothing.

    One that is to leave is killed: it has not begun, so that there is nothing to save.

    Raises:
        StaleAttempt: The attempt is over.
    """
    row, trial = current_attempt(unit.session, task)
    if trial.point_due and row.preempt_reason is not None:
        apply_allocation(unit, row, AllocationKillRequested(unit.now))
    elif trial.point_due:
        tell_search(unit, unit.experiment(trial.experiment_id), TrialPlaced(trial.request_id))
    return _reply(trial)


def read(s: Session, task: TaskCaller) -> PointReply:
    """Return the trial's point, if it has one.

    Raises:
        StaleAttempt: The attempt is over.
    """
    _, trial = current_attempt(s, task)
    return _reply(trial)


def _reply(trial: TrialRow) -> PointReply:
    return PointReply() if trial.point_due else PointReply(ready=True, hparams=trial.hparams)
