"""Budgets of searches (`searcher.budget`): what is used, what remains, and the end when one is used up.

Slot hours count from the assignment of slots to their release, as in the usage of users; wall-clock time from the start
of the first trial, without pauses. Both follow from rows, so that a master that was down notices when it is back.
"""

from __future__ import annotations

import logging

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.wire import ExperimentState
from detlab_hub.core.searchers import BudgetSpent
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.transitions import finish_turn, tell_search
from detlab_hub.services.views import budget_views
from detlab_hub.store.tables import ExperimentRow

_log = logging.getLogger(__name__)
_SPENT = "spent"


def due(s: Session, now: float) -> list[tuple[int, str]]:
    """Return the active experiments with a used-up budget, and that budget."""
    query = select(ExperimentRow).where(
        ExperimentRow.state == ExperimentState.ACTIVE.value, ExperimentRow.budget.is_not(None)
    )
    over = []
    for row in s.scalars(query.order_by(ExperimentRow.id)):
        if (row.budget or {}).get(_SPENT):
            continue
        spent = [one for one in budget_views.views(s, row, now) if one.used >= one.limit]
        if spent:
            over.append((row.id, "; ".join(f"{one.name}: {one.used:.3g} of {one.limit:g} used" for one in spent)))
    return over


def act(unit: UnitOfWork, experiment_id: int, reason: str) -> None:
    """Tell a search once that a budget is used up."""
    row = unit.experiment(experiment_id)
    if row.state != ExperimentState.ACTIVE or row.budget is None or row.budget.get(_SPENT):
        return
    row.budget = {**row.budget, _SPENT: reason}
    warning = f"the budget is used up ({reason}): its trials were stopped"
    row.warnings = [*row.warnings, warning]
    unit.changed_experiment(experiment_id)
    _log.info("experiment %d: %s", experiment_id, warning)
    tell_search(unit, row, BudgetSpent(reason))
    finish_turn(unit)
