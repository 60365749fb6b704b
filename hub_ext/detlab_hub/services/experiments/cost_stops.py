"""What happens when a cap of cost is reached: experiments are paused, and their owners told. Nothing is killed."""

from __future__ import annotations

import logging

from sqlalchemy.orm import Session

from detlab_hub.core.lifecycle import experiment as lifecycle
from detlab_hub.services.admission import cost_caps
from detlab_hub.services.admission.cost_caps import FOR_EVER, USER, CapReached
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.transitions import apply_experiment, finish_turn
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.store.queries import usage
from detlab_hub.store.tables import CostCapRow

_log = logging.getLogger(__name__)
_MOST_TOLD = 60
"""Alerts of one cap to one person in a minute."""
EVERY = 5.0
"""Seconds between two looks."""
_NAMED = 20
"""Experiments that an alert names."""


def due(s: Session, now: float) -> list[CapReached]:
    """Return the reached caps under which an experiment is active, or of which nobody was told this month."""
    found = []
    for cap in cost_caps.reached(s, now):
        row = s.get(CostCapRow, (cap.kind, cap.name))
        if row is not None and (row.told != cap.month or usage.active(s, cap.kind, cap.name)):
            found.append(cap)
    return found


def act(unit: UnitOfWork, cap: CapReached) -> None:
    """Pause what is active under a cap that is reached, and tell its owners."""
    row = unit.session.get(CostCapRow, (cap.kind, cap.name))
    if row is None or row.amount > cap.used:
        return  # it was raised or removed meanwhile
    owners: dict[str, list[int]] = {cap.name: []} if cap.kind == USER else {}
    for number in usage.active(unit.session, cap.kind, cap.name):
        experiment = unit.experiment(number)
        experiment.warnings = [*cost_caps.without_pause(experiment.warnings), f"paused: {cap.brief}"]
        apply_experiment(unit, experiment, lifecycle.ExperimentPauseRequested())
        unit.changed_experiment(number)
        owners.setdefault(experiment.owner, []).append(number)
    row.told = cap.month
    for owner, numbers in owners.items():
        source = f"cap {cap.kind} {cap.name}"
        only = numbers[0] if len(numbers) == 1 else None
        tell(unit, owner, source, Said("budget", cap.text, _what(cap, numbers), "warn", only), most=_MOST_TOLD)
    _log.info("%s: %d experiments paused", cap.text, sum(map(len, owners.values())))
    finish_turn(unit)


def _what(cap: CapReached, numbers: list[int]) -> str:
    names = ", ".join(map(str, numbers[:_NAMED])) + (" …" if len(numbers) > _NAMED else "")
    paused = f"Paused, with what they saved: experiments {names}." if numbers else "No experiment was active."
    until = "the cap is raised" if cap.month == FOR_EVER else "the cap is raised or the month is over"
    return (
        f"{paused} Notebooks and other tasks go on; nothing new starts until {until}. Then: det experiment activate ID"
    )
