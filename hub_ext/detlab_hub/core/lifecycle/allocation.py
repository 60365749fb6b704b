"""One attempt to run a trial: from the request for slots to the exit of the task.

    PENDING ─ Assigned ─► ASSIGNED ─ TaskStarted ─► RUNNING ─ kill ─► TERMINATING ─ PartsGone ─► TERMINATED

A preemption is a request with a deadline: the task polls, acknowledges, checkpoints and exits 0. When the
deadline has passed the task gets SIGTERM, and SIGKILL a little later. A stop by the searcher is delivered the
same way, with shorter deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from detlab.schemas.wire import AllocationState
from detlab_hub.core.lifecycle.table import ALLOCATION_ORDER, check_progress

NOT_BEGUN = (AllocationState.ASSIGNED, AllocationState.PULLING, AllocationState.STARTING)
"""It is placed, and its task does not run yet."""


class PreemptReason(StrEnum):
    """Why a task is asked to leave."""

    STOP = "stop"
    PAUSE = "pause"
    PREEMPT = "preempt"
    CANCEL = "cancel"
    DRAIN = "drain"
    DEVICE = "device"
    """One of its slots has disappeared from its agent; it is not asked, but killed."""
    TIME_LIMIT = "time_limit"
    """Its batch system ends it soon."""


_FINAL_REASONS = frozenset({PreemptReason.STOP, PreemptReason.CANCEL})
_UNCOUNTED = frozenset({PreemptReason.PAUSE, PreemptReason.DRAIN, PreemptReason.DEVICE, PreemptReason.TIME_LIMIT})
"""Preemptions by users and by machines, without a bound; those by the scheduler are bounded (I10)."""


class EndKind(StrEnum):
    """How an attempt ended; what becomes of the trial depends on this alone."""

    WITHDRAWN = "withdrawn"
    """It was never placed."""
    FINISHED = "finished"
    """Exit 0, without a request."""
    PREEMPTED = "preempted"
    """Exit 0 after it acknowledged that it should leave."""
    FAILED = "failed"
    """Any other exit, without a request."""
    KILLED = "killed"
    """We sent the signal, so its exit code means nothing."""
    REFUSED = "refused"
    """The agent would not start it."""
    LOST = "lost"
    """The agent is lost, or came back without it."""


@dataclass(frozen=True, slots=True)
class Graces:
    """How long a task has before SIGTERM, in seconds since it was asked to leave."""

    preemption: float = 3600.0
    stop: float = 10.0
    stop_acked: float = 60.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """State of one attempt; times in seconds since the epoch."""

    state: AllocationState = AllocationState.PENDING
    preempt_reason: PreemptReason | None = None
    preempt_at: float | None = None
    acked_at: float | None = None
    term_at: float | None = None
    """When SIGTERM is due."""
    kill_sent_at: float | None = None
    end: EndKind | None = None


# --- events


@dataclass(frozen=True, slots=True)
class Assigned:
    """The scheduler gave it slots."""


@dataclass(frozen=True, slots=True)
class StageReached:
    """The agent has reached a stage of the launch."""

    stage: AllocationState


@dataclass(frozen=True, slots=True)
class AllocationStarted:
    """Reported by the agent, or by the task itself."""


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The task should checkpoint and exit."""

    reason: PreemptReason
    now: float
    graces: Graces


@dataclass(frozen=True, slots=True)
class LeaveAcknowledged:
    """The task will checkpoint and exit."""

    now: float
    graces: Graces


@dataclass(frozen=True, slots=True)
class AllocationKillRequested:
    """The task must go, now."""

    now: float


@dataclass(frozen=True, slots=True)
class DeadlinePassed:
    """The clock moved; `step` checks whether the deadline has passed."""

    now: float


@dataclass(frozen=True, slots=True)
class PartsGone:
    """All its parts have ended, one on each of its nodes; `kind` is the verdict of `gang`."""

    kind: EndKind


Event: TypeAlias = (
    Assigned
    | StageReached
    | AllocationStarted
    | LeaveRequested
    | LeaveAcknowledged
    | AllocationKillRequested
    | DeadlinePassed
    | PartsGone
)

# --- actions


@dataclass(frozen=True, slots=True)
class SendLaunch:
    """Tell the agent to start the task. Idempotent by allocation and run."""


@dataclass(frozen=True, slots=True)
class SignalPreempt:
    """Wake the task's long poll."""


@dataclass(frozen=True, slots=True)
class SendKill:
    """Tell the agent to send SIGTERM, then SIGKILL. Idempotent."""


@dataclass(frozen=True, slots=True)
class EndAttempt:
    """Free the slots and tell the trial how the attempt ended."""

    kind: EndKind


Action: TypeAlias = SendLaunch | SignalPreempt | SendKill | EndAttempt


@dataclass(frozen=True, slots=True)
class AllocationStep:
    """The new state and what to do about it, in order."""

    state: Allocation
    actions: tuple[Action, ...] = ()


def step(old: Allocation, event: Event) -> AllocationStep:
    """Handle one event; a repeated or late event changes nothing.

    Raises:
        IllegalTransitionError: If the state would go back (a bug in this function).
    """
    if old.state is AllocationState.TERMINATED:
        return AllocationStep(old)
    result = _step(old, event)
    check_progress(old.state, result.state.state)
    return result


def _step(old: Allocation, event: Event) -> AllocationStep:
    match event:
        case Assigned():
            if old.state is not AllocationState.PENDING:
                return AllocationStep(old)
            return AllocationStep(replace(old, state=AllocationState.ASSIGNED), (SendLaunch(),))
        case StageReached(stage):
            return _reach(old, stage)
        case AllocationStarted():
            begins = old.state in NOT_BEGUN
            return AllocationStep(replace(old, state=AllocationState.RUNNING)) if begins else AllocationStep(old)
        case LeaveRequested():
            return _leave(old, event)
        case LeaveAcknowledged():
            return _acknowledge(old, event)
        case AllocationKillRequested(now):
            return _kill(old, now)
        case DeadlinePassed(now):
            return _kill(old, now) if _deadline_passed(old, now) else AllocationStep(old)
        case PartsGone(kind):
            return _end(old, kind)
        case _:
            assert_never(event)


def _deadline_passed(old: Allocation, now: float) -> bool:
    return old.term_at is not None and now >= old.term_at and old.kill_sent_at is None


def _reach(old: Allocation, stage: AllocationState) -> AllocationStep:
    forward = ALLOCATION_ORDER.index(stage) > ALLOCATION_ORDER.index(old.state)
    if old.state in NOT_BEGUN and stage in NOT_BEGUN and forward:
        return AllocationStep(replace(old, state=stage))
    return AllocationStep(old)


def _leave(old: Allocation, event: LeaveRequested) -> AllocationStep:
    if old.state is AllocationState.TERMINATING:
        return AllocationStep(old)
    if old.state is AllocationState.PENDING:
        return _end(old, EndKind.WITHDRAWN)
    # A request to end for good outlives one to come back later, never the other way round.
    reason = event.reason
    if old.preempt_reason in _FINAL_REASONS:
        reason = old.preempt_reason
    elif old.preempt_reason is PreemptReason.PREEMPT and reason in _UNCOUNTED:
        reason = PreemptReason.PREEMPT  # it was preempted, and stays counted as that
    grace = event.graces.preemption
    if event.reason is PreemptReason.STOP:
        grace = event.graces.stop if old.acked_at is None else event.graces.stop_acked
    term_at = event.now + grace
    if old.term_at is not None:
        term_at = min(term_at, old.term_at)
    asked = replace(
        old,
        preempt_reason=reason,
        preempt_at=event.now if old.preempt_at is None else old.preempt_at,
        term_at=term_at,
    )
    if old.state is not AllocationState.RUNNING:
        # Nothing has run yet, so there is nothing to save.
        return _kill(asked, event.now)
    return AllocationStep(asked, (SignalPreempt(),))


def _acknowledge(old: Allocation, event: LeaveAcknowledged) -> AllocationStep:
    if old.preempt_reason is None or old.acked_at is not None:
        return AllocationStep(old)
    acked = replace(old, acked_at=event.now)
    if old.preempt_reason is PreemptReason.STOP and old.preempt_at is not None and old.kill_sent_at is None:
        acked = replace(acked, term_at=old.preempt_at + event.graces.stop_acked)
    return AllocationStep(acked)


def _kill(old: Allocation, now: float) -> AllocationStep:
    if old.state is AllocationState.PENDING:
        return _end(old, EndKind.WITHDRAWN)
    sent = now if old.kill_sent_at is None else old.kill_sent_at
    return AllocationStep(replace(old, state=AllocationState.TERMINATING, kill_sent_at=sent), (SendKill(),))


def kind_of_exit(old: Allocation, exit_code: int | None) -> EndKind:
    """Return how a part ends whose process group exits in this state; `exit_code` None: its launcher died."""
    if exit_code == 0 and old.acked_at is not None:
        return EndKind.PREEMPTED
    if old.kill_sent_at is not None:
        return EndKind.KILLED
    return EndKind.FINISHED if exit_code == 0 else EndKind.FAILED


def _end(old: Allocation, kind: EndKind) -> AllocationStep:
    ended = replace(old, state=AllocationState.TERMINATED, end=kind)
    return AllocationStep(ended, (SignalPreempt(), EndAttempt(kind)))
