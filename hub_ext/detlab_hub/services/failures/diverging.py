"""Completed searches whose trials ended with values that are no numbers: they have a result, from before that."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab_hub.store.queries import trials
from detlab_hub.store.tables import ExperimentRow

SIGN = "ended with NaN or an infinite value of"


def warning_of(s: Session, experiment: ExperimentRow) -> str | None:
    """Return the warning about a search some or all of whose trials have diverged after better values."""
    counted, bad = trials.ends_without_number(s, experiment.id)
    told = f"{SIGN} {experiment.metric!r}; the best value is from before"
    if not bad:
        return None
    if counted == 1:
        return f"its trial {told}"
    return f"all {bad} trials {told}" if bad == counted else f"{bad} of {counted} trials {told}"
