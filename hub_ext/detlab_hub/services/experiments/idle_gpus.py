"""Warnings about GPUs that are held and not used, in pools that ask for them (`idle_gpu_warning`)."""

from __future__ import annotations

import logging

from sqlalchemy.orm import Session

from detlab_hub.services.base.settings import Settings
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.notify.telling import Said, tell
from detlab_hub.store.queries.metrics.idle import IdleTrial, idle_trials

_log = logging.getLogger(__name__)
EVERY = 60.0
"""Seconds between two looks."""
_BEGINS = "its GPUs are idle in attempt"


def due(s: Session, now: float, settings: Settings) -> list[IdleTrial]:
    """Return the trials of which nobody was told yet; none where no pool asks for it."""
    found: dict[int, IdleTrial] = {}
    pools = [pool for pool in settings.pools.by_name.values() if pool.idle_gpu_warning]
    for seconds in {pool.idle_gpu_warning for pool in pools}:
        names = {pool.name for pool in pools if pool.idle_gpu_warning == seconds}
        found |= {one.trial_id: one for one in idle_trials(s, now, seconds) if one.pool in names}
    return list(found.values())


def act(unit: UnitOfWork, idle: IdleTrial) -> None:
    """Tell the owner, once in each attempt."""
    trial = unit.trial(idle.trial_id)
    mark = f"{_BEGINS} {idle.run}"
    if any(one.startswith(mark) for one in trial.warnings):
        return
    minutes = (unit.now - idle.since) / 60
    text = (
        f"{mark}: at 0 % for {minutes:.0f} min, while it holds {idle.slots} slots. It may wait for data or hang:"
        f" det trial logs {idle.trial_id}; det experiment pause {idle.experiment_id} releases them"
    )
    trial.warnings = [*trial.warnings, text]
    unit.changed_trial(trial)
    said = Said("alert", f"GPUs of trial {idle.trial_id} are idle", text, "warn", idle.experiment_id, idle.trial_id)
    tell(unit, idle.owner, f"idle {idle.trial_id}", said, most=1)
    _log.info("trial %d: its GPUs are idle", idle.trial_id)
