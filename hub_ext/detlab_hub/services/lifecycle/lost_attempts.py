"""Trials without progress: attempt after attempt is lost with its agent, and none reaches a checkpoint.

The loss of a machine is not a failure of the trial and does not count as a restart. But the trial may be the cause of
the losses, and would then crash one machine after another without end. Hence a bound. A trial that saves checkpoints
never reaches it: between two of its attempts there is a checkpoint. The same holds for one that was always lost with
the same agent: then that agent is the unstable part.
"""

from __future__ import annotations

from sqlalchemy import select

from detlab.schemas.wire import FailureView, TrialState
from detlab_hub.core.lifecycle.allocation import EndKind
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.store.tables import AllocationRow, TrialRow

MOST_LOSSES = 20
"""Most lost attempts in a row, all from the same checkpoint or all from the beginning."""


def given_up(turn: Turn, trial: TrialRow, row: AllocationRow, kind: EndKind) -> FailureView | None:
    """Return the card of a trial that is not retried, as too many attempts in a row were lost; None if it is retried.

    Args:
        turn: The transaction.
        trial: The trial.
        row: The attempt that ends.
        kind: How it ends.
    """
    if kind is not EndKind.LOST or row.run < MOST_LOSSES or trial.state != TrialState.ACTIVE:
        return None
    query = (
        select(AllocationRow.exit_reason, AllocationRow.resume_step, AllocationRow.agent_id)
        .where(AllocationRow.trial_id == trial.id, AllocationRow.run < row.run, AllocationRow.started_at.is_not(None))
        .order_by(AllocationRow.run.desc())
        .limit(MOST_LOSSES - 1)
    )
    before = turn.session.execute(query).all()
    if len(before) < MOST_LOSSES - 1 or any(one[:2] != (EndKind.LOST.value, row.resume_step) for one in before):
        return None
    if row.started_at is None or {one.agent_id for one in before} <= {row.agent_id}:
        return None
    begun = "from its beginning" if row.resume_step is None else f"from step {row.resume_step}"
    last, command = row.agent_id, f"det trial logs {trial.id}"
    return FailureView(
        kind="lost",
        message=f"{MOST_LOSSES} attempts in a row, all {begun}, were lost with their agents, the last with {last}",
        trial_id=trial.id,
        hint=f"it may be the cause of these losses, so it is not retried; its output: {command}",
        command=command,
    )
