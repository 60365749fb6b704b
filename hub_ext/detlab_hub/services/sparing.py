"""Preemption after a checkpoint where one is near.

A pass chooses who has to leave. Whoever is about to save is left alone by this pass; the next ones choose again, the
one that follows the commit of the checkpoint among them, and ask then. Nothing is stored: no decision was made yet,
and a trial that is not needed any more meanwhile keeps its slots. A checkpoint that does not come is waited for a
few seconds, see `core.lifecycle.cadence`.
"""

from __future__ import annotations

import logging

from sqlalchemy import bindparam, select

from detlab_hub.core.lifecycle.cadence import ENOUGH, is_near
from detlab_hub.services.turn import Turn
from detlab_hub.store.prepared import Prepared
from detlab_hub.store.tables import AllocationRow, CheckpointRow

_log = logging.getLogger(__name__)
_LAST = Prepared(
    select(CheckpointRow.created_at)
    .where(CheckpointRow.trial_id == bindparam("trial"), CheckpointRow.run == bindparam("run"))
    .order_by(CheckpointRow.steps_completed.desc(), CheckpointRow.created_at.desc())
    .limit(ENOUGH)
)


def saves_soon(turn: Turn, row: AllocationRow) -> bool:
    """Whether an allocation that is to be preempted should first be left to save."""
    if row.trial_id is None or turn.settings.checkpoint_near <= 0.0:
        return False
    times = [found.created_at for found in _LAST.all(turn.session, {"trial": row.trial_id, "run": row.run})]
    if not is_near(times[::-1], turn.now, turn.settings.checkpoint_near):
        return False
    _log.info("allocation %s is to leave, after the checkpoint that is near", row.id)
    return True
