"""Completed searches whose trials ended with values that are no numbers: they have a result, from before that."""

from __future__ import annotations

from sqlalchemy.orm import Session

from detlab_hub.services.failures.cards import NO_VALUE
from detlab_hub.store.queries import trials
from detlab_hub.store.tables import ExperimentRow

SIGN = "ended with NaN or an infinite value of"


def warning_of(s: Session, experiment: ExperimentRow) -> str | None:
    """Return the warning about a search some or all of whose trials have diverged after better values."""
    counted, bad = trials.ends_without_number(s, experiment.id)
    told = f"{SIGN} {experiment.metric!r}"
    if not bad:
        return None
    if bad < counted:  # the best may be one of those that went well
        return f"{bad} of {counted} trials {told}"
    return f"{'its trial' if counted == 1 else f'all {bad} trials'} {told}; the best value is from before"


def values_warning(experiment: ExperimentRow) -> str | None:
    """Return the warning of a search that completed without a number of its metric, or that diverged."""
    signs = (SIGN, f"{NO_VALUE} {experiment.metric!r}")
    return next((said for said in experiment.warnings if any(sign in said for sign in signs)), None)
