"""Trials without progress: attempt after attempt ends by no fault of the trial, and none reaches a checkpoint.

The loss of a machine is not a failure of the trial and does not count as a restart. But the trial may be the cause of
the losses, and would then crash one machine after another without end. Hence a bound. A trial that saves checkpoints
never reaches it: between two of its attempts there is a checkpoint. The same holds for one that was always lost with
the same agent: then that agent is the unstable part.

Nor does it count when a trial leaves because the time of its batch job is up. But one whose start takes longer than
that time, or that saves nothing, would be queued, started and ended without end. Hence a bound there, too.

And whatever the reason, and on whichever agent: attempts that are over in a few minutes, one after the other, are
started later and later, and after hours no more. A batch system whose jobs vanish, because somebody renames or cancels
them, an agent that refuses each: these would go on forever. The same holds for tasks that never get to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session

from detlab.schemas.wire import FailureView, TrialState
from detlab_hub.core.lifecycle.allocation import EndKind, PreemptReason
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.failures import cards
from detlab_hub.store.tables import AllocationRow, CheckpointRow, TaskRow, TrialRow

if TYPE_CHECKING:
    from sqlalchemy import Row

    _Attempt = Row[str | None, str | None, int | None, str | None]

MOST_LOSSES = 20
"""Most lost attempts in a row, all from the same checkpoint or all from the beginning."""
MOST_JOBS = 3
"""Most attempts in a row that left near the time limits of their batch jobs, all from the same point."""
MOST_SHORT = 20
"""Most attempts in a row that were over within `SHORT`, all from the same point, once they have taken `SHORT_SPAN`."""
SHORT = 600.0
"""Seconds from its start, or from its placement, within which an attempt that is over has got nowhere."""
SHORT_SPAN, REFUSED_SPAN = 3600.0, 86400.0
"""Seconds that `MOST_SHORT` attempts must have taken at least; the latter where an agent has refused some: it refuses
while its disk is full, and somebody has to see to that."""
AT_ONCE = 3
"""So many such attempts in a row are started again without a pause."""
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0
_OTHERS_FAULT = (EndKind.LOST.value, EndKind.REFUSED.value)


def given_up(unit: UnitOfWork, trial: TrialRow, row: AllocationRow, kind: EndKind) -> FailureView | None:
    """Return the card of a trial that is not retried, as too many in a row made no progress; None if it is retried.

    Args:
        unit: The transaction.
        trial: The trial.
        row: The attempt that ends.
        kind: How it ends.
    """
    if trial.state != TrialState.ACTIVE:
        return None
    if kind.value in _OTHERS_FAULT and (card := _short(unit, row, kind, f"det trial logs {trial.id}")) is not None:
        return None if _saved(unit, trial, row) else card.model_copy(update={"trial_id": trial.id})
    if kind is EndKind.LOST:
        return _lost(unit, trial, row)
    if kind in {EndKind.PREEMPTED, EndKind.KILLED} and row.preempt_reason == PreemptReason.TIME_LIMIT:
        return _out_of_time(unit, trial, row)
    return None


def _lost(unit: UnitOfWork, trial: TrialRow, row: AllocationRow) -> FailureView | None:
    before = _before(unit, trial, row, MOST_LOSSES - 1)
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


def _out_of_time(unit: UnitOfWork, trial: TrialRow, row: AllocationRow) -> FailureView | None:
    before = _before(unit, trial, row, MOST_JOBS - 1)
    if before is None or any(one.preempt_reason != PreemptReason.TIME_LIMIT for one in before):
        return None
    if _saved(unit, trial, row):
        return None
    return FailureView(
        kind="max_time",
        message=f"{MOST_JOBS} attempts in a row, all {_begun(row)}, reached the time limit of their batch jobs"
        " without a checkpoint",
        trial_id=trial.id,
        hint=f"it would make no progress, so it is not retried; {cards.LONGER}",
        command=f"det trial logs {trial.id}",
    )


def _saved(unit: UnitOfWork, trial: TrialRow, row: AllocationRow) -> bool:
    """Whether an attempt has stored a checkpoint."""
    saved = select(CheckpointRow.uuid).where(
        CheckpointRow.trial_id == trial.id,
        CheckpointRow.run == row.run,
        CheckpointRow.state == "COMPLETED",
    )
    return unit.session.scalar(saved.limit(1)) is not None


def task_given_up(unit: UnitOfWork, task: TaskRow, row: AllocationRow, kind: EndKind) -> FailureView | None:
    """Return the card of a user task that is not tried again, as too many attempts in a row never ran; else None."""
    if kind is not EndKind.REFUSED and (kind is not EndKind.LOST or row.started_at is not None):
        return None  # it ends with this attempt
    return _short(unit, row, kind, f"det task logs {task.id}")


@dataclass(frozen=True)
class _Streak:
    """Attempts in a row that have got nowhere.

    Attributes:
        count: How many.
        since: When the first of them was asked for.
        kinds: How often each kind of end was among them.
    """

    count: int
    since: float
    kinds: Mapping[str, int]


def pause_before_next(s: Session, row: AllocationRow) -> float:
    """Return for how many seconds a trial or task is not started again where its attempt is ending by no fault of it.

    Args:
        s: A session.
        row: The attempt, which is counted as one that has got nowhere.
    """
    number = _streak(s, row).count + 1 - AT_ONCE
    return 0.0 if number <= 0 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(number - 1, 20))


def _short(unit: UnitOfWork, row: AllocationRow, kind: EndKind, command: str) -> FailureView | None:
    begun = row.started_at or row.assigned_at
    if row.run < MOST_SHORT or begun is None or unit.now - begun >= SHORT:
        return None
    streak = _streak(unit.session, row)
    kinds = Counter(streak.kinds) + Counter({kind.value: 1})
    span = REFUSED_SPAN if kinds[EndKind.REFUSED.value] else SHORT_SPAN
    if streak.count + 1 < MOST_SHORT or unit.now - min(streak.since, row.requested_at) < span:
        return None
    hours = (unit.now - streak.since) / 3600
    counted = ", ".join(f"{_WORDS[EndKind(one)]} {times} times" for one, times in kinds.most_common())
    told = unit.exits.get(row.id)
    last = f", the last time: {told.message[:300]}" if told is not None and told.message else ""
    return FailureView(
        kind="lost",
        message=f"{streak.count + 1} attempts in a row within {hours:.1f} h, all {_begun(row)}, were over before they"
        f" got anywhere: {counted}, by {row.agent_id}{last}",
        hint=f"it is not started again until somebody has looked at that agent (det agent list); {command}",
        command=command,
    )


_WORDS = {EndKind.LOST: "lost", EndKind.REFUSED: "refused"}


def _streak(s: Session, row: AllocationRow) -> _Streak:
    """Return the attempts before this one that have got nowhere, up to the last that has, or ended otherwise."""
    mine = AllocationRow.task_id == row.task_id if row.trial_id is None else AllocationRow.trial_id == row.trial_id
    lasted = AllocationRow.ended_at - func.coalesce(AllocationRow.started_at, AllocationRow.assigned_at)
    same = (
        AllocationRow.resume_step.is_(None) if row.resume_step is None else AllocationRow.resume_step == row.resume_step
    )
    nowhere = and_(AllocationRow.exit_reason.in_(_OTHERS_FAULT), lasted < SHORT, same)
    before = and_(mine, AllocationRow.run < row.run)
    other = select(func.max(AllocationRow.run)).where(before, case((nowhere, 0), else_=1) == 1)
    ended = s.scalar(other) or 0
    query = select(AllocationRow.exit_reason, func.count(), func.min(AllocationRow.requested_at))
    found = s.execute(query.where(before, AllocationRow.run > ended).group_by(AllocationRow.exit_reason)).all()
    kinds = {str(reason): int(times) for reason, times, _ in found}
    since = min((float(at) for _, _, at in found), default=row.requested_at)
    return _Streak(sum(kinds.values()), since, kinds)


def _before(unit: UnitOfWork, trial: TrialRow, row: AllocationRow, count: int) -> Sequence[_Attempt] | None:
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
    found = unit.session.execute(query).all()
    same = len(found) == count and all(one.resume_step == row.resume_step for one in found)
    return found if same else None


def _begun(row: AllocationRow) -> str:
    return "from its beginning" if row.resume_step is None else f"from step {row.resume_step}"
