"""An agent that comes back with other slots than it had: fewer, after a GPU fell off or was taken away, or more.

What it has more is offered to the scheduler like any slot. A task that had a slot which is gone computes on nothing, or
will: it is killed, keeps its other slots until it is out, and a trial starts again elsewhere, uncounted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from detlab.schemas.wire import AllocationState, FailureView
from detlab_hub.core.lifecycle.allocation import Graces, KillRequested, LeaveRequested, PreemptReason
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.services.lifecycle.transitions import apply_allocation
from detlab_hub.store.tables import AllocationRow

_log = logging.getLogger(__name__)
_AT_ONCE = Graces(preemption=0.0, stop=0.0, stop_acked=0.0)


def end_without(turn: Turn, row: AllocationRow, agent_id: str, gone: Collection[str]) -> None:
    """End an allocation that still runs on an agent and lost slots of its there."""
    if row.state == AllocationState.TERMINATING or not gone:
        return
    message = f"agent {agent_id} came back without {'slot' if len(gone) == 1 else 'slots'} {', '.join(sorted(gone))}"
    _log.warning("allocation %s: %s; it is killed", row.id, message)
    if row.task_id is not None:
        card = FailureView(
            kind="lost", message=message, hint="what the agent has now: det slot list", command="det slot list"
        )
        turn.task(row.task_id).failure = card.model_dump()
    else:
        apply_allocation(turn, row, LeaveRequested(PreemptReason.DEVICE, turn.now, _AT_ONCE))
    apply_allocation(turn, row, KillRequested(turn.now))
