"""Trials without progress: attempt after attempt ends by no fault of the trial, and none reaches a checkpoint.

The loss of a machine is not a failure of the trial and does not count as a restart. But the trial may be the cause of
the losses, and would then crash one machine after another without end. Hence a bound. A trial that saves checkpoints
never reaches it: between two of its attempts there is a checkpoint. The same holds for one that was always lost with
the same agent: then that agent is the unstable part.

Nor does it count when a trial leaves because the time of its batch job is up. But one whose start takes longer than
that time, or that saves nothing, would be queued, started and ended without end. Hence a bound there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sqlalchemy import select

from detlab.schemas.wire import FailureView, TrialState
from detlab_hub.core.lifecycle.allocation import EndKind, PreemptReason
from detlab_hub.services.failures import cards
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.store.tables import AllocationRow, CheckpointRow, TrialRow

if TYPE_CHECKING:
    from sqlalchemy import Row

    _Attempt = Row[str | None, str | None, int | None, str | None]

MOST_LOSSES = 20
"""Most lost attempts in a row, all from the same checkpoint or all from the beginning."""
MOST_JOBS = 3
"""Most attempts in a row that left near the time limits of their batch jobs, all from the same point."""


def given_up(turn: Turn, trial: TrialRow, row: AllocationRow, kind: EndKind) -> FailureView | None:
    """Return the card of a trial that is not retried, as too many in a row made no progress; None if it is retried.

    Args:
        turn: The transaction.
        trial: The trial.
        row: The attempt that ends.
        kind: How it ends.
    """
    if trial.state != TrialState.ACTIVE:
        return None
    if kind is EndKind.LOST:
        return _lost(turn, trial, row)
    if kind in {EndKind.PREEMPTED, EndKind.KILLED} and row.preempt_reason == PreemptReason.TIME_LIMIT:
        return _out_of_time(turn, trial, row)
    return None


def _lost(turn: Turn, trial: TrialRow, row: AllocationRow) -> FailureView | None:
    before = _before(turn, trial, row, MOST_LOSSES - 1)
    if before is None or any(one.exit_reason != EndKind.LOST for one in before):
        return None
    if row.started_at is None or {one.agent_id for one in before} <= {row.agent_id}:
        return None
    last, command = row.agent_id, f"det trial logs {trial.id}"
    return FailureView(
        kind="lost",
        message=f"{MOST_LOSSES} attempts in a row, all {_begun(row)}, were lost with their agents,"
        f" the last with {last}",
        trial_id=trial.id,
        hint=f"it may be the cause of these losses, so it is not retried; its output: {command}",
        command=command,
    )


def _out_of_time(turn: Turn, trial: TrialRow, row: AllocationRow) -> FailureView | None:
    before = _before(turn, trial, row, MOST_JOBS - 1)
    if before is None or any(one.preempt_reason != PreemptReason.TIME_LIMIT for one in before):
        return None
    saved = select(CheckpointRow.uuid).where(
        CheckpointRow.trial_id == trial.id,
        CheckpointRow.run == row.run,
        CheckpointRow.state == "COMPLETED",
    )
    if turn.session.scalar(saved.limit(1)) is not None:
        return None
    return FailureView(
        kind="max_time",
        message=f"{MOST_JOBS} attempts in a row, all {_begun(row)}, reached the time limit of their batch jobs"
        " without a checkpoint",
        trial_id=trial.id,
        hint=f"it would make no progress, so it is not retried; {cards.LONGER}",
        command=f"det trial logs {trial.id}",
    )


def _before(turn: Turn, trial: TrialRow, row: AllocationRow, count: int) -> Sequence[_Attempt] | None:
    """Return the attempts before this one, newest first; None if so many have not begun from the same point."""
    if row.run <= count:
        return None
    query = (
        select(
            AllocationRow.exit_reason, AllocationRow.preempt_reason, AllocationRow.resume_step, AllocationRow.agent_id
        )
        .where(AllocationRow.trial_id == trial.id, AllocationRow.run < row.run, AllocationRow.started_at.is_not(None))
        .order_by(AllocationRow.run.desc())
        .limit(count)
    )
    found = turn.session.execute(query).all()
    same = len(found) == count and all(one.resume_step == row.resume_step for one in found)
    return found if same else None


def _begun(row: AllocationRow) -> str:
    return "from its beginning" if row.resume_step is None else f"from step {row.resume_step}"
