"""Completed searches whose trials ended with values that are no numbers: they have a result, from before that."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, func, literal_column, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import TrialState
from detlab_hub.store.prepared import PreparedStatement
from detlab_hub.store.tables import ExperimentRow, TrialRow

_TRIALS: Any = TrialRow.__table__
_NO_NUMBERS = ", ".join(f"'{value!r}'" for value in (float("nan"), float("inf"), float("-inf")))
_ENDS = PreparedStatement(
    select(
        func.count().label("trials"),
        # As the column keeps them (`ExactFloat`), compared as text.
        func.count().filter(literal_column(f"trials.latest_validation IN ({_NO_NUMBERS})")).label("without_number"),
    ).where(
        _TRIALS.c.experiment_id == bindparam("experiment"),
        _TRIALS.c.state == TrialState.COMPLETED,
        _TRIALS.c.latest_validation.is_not(None),
    )
)
"""How many trials of an experiment have completed with values, and how many with a last one that is no number."""
SIGN = "ended with NaN or an infinite value of"


def warning_of(s: Session, experiment: ExperimentRow) -> str | None:
    """Return the warning about a search some or all of whose trials have diverged after better values."""
    counted = _ENDS.all(s, {"experiment": experiment.id})[0]
    bad, told = counted.without_number, f"{SIGN} {experiment.metric!r}; the best value is from before"
    if not bad:
        return None
    if counted.trials == 1:
        return f"its trial {told}"
    return f"all {bad} trials {told}" if bad == counted.trials else f"{bad} of {counted.trials} trials {told}"
