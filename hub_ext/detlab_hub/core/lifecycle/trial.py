"""A trial: requests allocations until it has ended, and reports its end to the searcher.

An exit is evaluated in Determined's order (`trial.go:handleAllocationExit`), with the searcher's
stop delivered: stopping states first, then what is never counted (lost, refused, killed by us, preempted),
then failures, which count restarts, then the ordinary end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, TypeAlias, assert_never

from detlab.schemas.wire import EndReason, TrialState
from detlab_hub.core.lifecycle.allocation import EndKind, PreemptReason
from detlab_hub.core.lifecycle.table import check_move, degrade, is_stopping

INVALID_HP = "INVALID_HP"
ERRORED = "ERRORED"
USER_REQUESTED_STOP = "USER_REQUESTED_STOP"
EARLY_EXITS = (INVALID_HP, USER_REQUESTED_STOP, ERRORED)

SearchExit: TypeAlias = Literal["errored", "user_canceled", "invalid_hp"]


class Attempt(StrEnum):
    """Whether an allocation of this trial is not over yet."""

    NONE = "none"
    LIVE = "live"


class Hold(StrEnum):
    """Whether the search keeps the trial off its slots; an experiment that is paused keeps all of its trials off."""

    NONE = "none"
    SEARCH = "search"


class Evaluator(StrEnum):
    """Who evaluates the trial."""

    CLUSTER = "cluster"
    USER = "user"
    """A user, by hand: it never requests an allocation."""


class MetricState(StrEnum):
    """The state of the searcher metric, and the effect of its absence."""

    SEEN = "seen"
    MISSED = "missed"
    """Not reported so far; at the end that is worth a warning."""
    REQUIRED = "required"
    """Not reported so far; the search cannot do without it."""
    UNKNOWN = "unknown"
    """As REQUIRED, and no trial of the search has reported it: its name is probably wrong in the config or the code."""


@dataclass(frozen=True, slots=True)
class TrialStatus:
    """State of a trial. `run` counts attempts, `restarts` the failures among them."""

    state: TrialState = TrialState.ACTIVE
    attempt: Attempt = Attempt.NONE
    run: int = 0
    restarts: int = 0
    max_restarts: int = 5
    metric: MetricState = MetricState.MISSED
    early_exit: str | None = None
    end_reason: EndReason | None = None
    hold: Hold = Hold.NONE
    evaluator: Evaluator = Evaluator.CLUSTER


# --- events


@dataclass(frozen=True, slots=True)
class TrialRowCreated:
    """The searcher asked for it and its row exists."""


@dataclass(frozen=True, slots=True)
class StopDecided:
    """The searcher needs no more of it: stopped early, or `finished` as long as the search ever trains one."""

    finished: bool = False


@dataclass(frozen=True, slots=True)
class HoldDecided:
    """The search pauses it: free the slots, until it decides otherwise."""


@dataclass(frozen=True, slots=True)
class ReleaseDecided:
    """The search lets it train on.

    Attributes:
        paused: Whether its experiment is paused: then it waits for that.
    """

    paused: bool = False


@dataclass(frozen=True, slots=True)
class TrialReopened:
    """It had ended and is to train on from its checkpoint, once its search resumes it."""


@dataclass(frozen=True, slots=True)
class TrialPauseRequested:
    """Free the slots, keep the trial."""


@dataclass(frozen=True, slots=True)
class TrialActivateRequested:
    """Go on."""


@dataclass(frozen=True, slots=True)
class TrialCancelRequested:
    """End for good, checkpoint first."""


@dataclass(frozen=True, slots=True)
class TimeUp:
    """Its attempt has reached its maximum time: end for good, checkpoint first."""


@dataclass(frozen=True, slots=True)
class TrialKillRequested:
    """End for good, now."""


@dataclass(frozen=True, slots=True)
class Condemned:
    """It reported values that the search cannot use: a restart would not help."""


@dataclass(frozen=True, slots=True)
class EarlyExitReported:
    """Its code reported that it ends on purpose."""

    reason: str


class Retry(StrEnum):
    """The effect of a failed attempt on the next one."""

    COUNTED = "counted"
    FREE = "free"
    """It starts from another checkpoint, since the failed attempt could not use its own: not counted."""
    NEVER = "never"
    """The next one would fail for the same reason."""


@dataclass(frozen=True, slots=True)
class TrialAttemptEnded:
    """Its allocation is over.

    Attributes:
        kind: How it ended.
        retry: What a failure means for the next attempt.
        killed: Whether it failed because something else ended its processes: an operator, or a machine that shut down.
    """

    kind: EndKind
    retry: Retry = Retry.COUNTED
    killed: bool = False


Event: TypeAlias = (
    TrialRowCreated
    | StopDecided
    | HoldDecided
    | ReleaseDecided
    | TrialReopened
    | TrialPauseRequested
    | TrialActivateRequested
    | TrialCancelRequested
    | TimeUp
    | TrialKillRequested
    | Condemned
    | EarlyExitReported
    | TrialAttemptEnded
)

# --- actions


@dataclass(frozen=True, slots=True)
class RequestTrialAllocation:
    """Ask the scheduler for slots, for attempt number `run`."""

    run: int


@dataclass(frozen=True, slots=True)
class AskToLeave:
    """Preempt the live allocation."""

    reason: PreemptReason


@dataclass(frozen=True, slots=True)
class KillTrialAttempt:
    """Kill the live allocation."""


@dataclass(frozen=True, slots=True)
class TellSearcherEarly:
    """The trial ended before its code was done."""

    reason: SearchExit


@dataclass(frozen=True, slots=True)
class TellSearcherPaused:
    """The trial has left its slots, as the search decided."""


@dataclass(frozen=True, slots=True)
class WarnNeverReported:
    """Warn on the trial's page that the searcher metric was never reported."""


@dataclass(frozen=True, slots=True)
class PauseWithoutMetric:
    """The trial ended without the metric of its search: pause the search until that is mended; it then begins anew."""


@dataclass(frozen=True, slots=True)
class CloseTrial:
    """The trial is terminal: tell the searcher and the experiment."""


Action: TypeAlias = (
    RequestTrialAllocation
    | AskToLeave
    | KillTrialAttempt
    | TellSearcherEarly
    | TellSearcherPaused
    | WarnNeverReported
    | PauseWithoutMetric
    | CloseTrial
)


@dataclass(frozen=True, slots=True)
class TrialStep:
    """The new state and what to do about it, in order."""

    state: TrialStatus
    actions: tuple[Action, ...] = ()


def step(old: TrialStatus, event: Event) -> TrialStep:
    """Handle one event; a repeated or late event changes nothing.

    Raises:
        IllegalTransitionError: If the table has no such transition (a bug in this function).
    """
    if old.state.terminal and not isinstance(event, TrialReopened):
        return TrialStep(old)
    result = _step(old, event)
    check_move(old.state, result.state.state)
    return result


def _step(old: TrialStatus, event: Event) -> TrialStep:  # noqa: C901 - a case for each event
    match event:
        case TrialRowCreated():
            return _request(old) if old.state is TrialState.ACTIVE and old.run == 0 else TrialStep(old)
        case StopDecided(finished):
            return _stop(old, finished)
        case HoldDecided():
            return _hold(old)
        case ReleaseDecided(paused):
            return _release(old, paused=paused)
        case TrialReopened():
            return _reopen(old)
        case TrialPauseRequested():
            return _pause(old)
        case TrialActivateRequested():
            return _activate(old)
        case TrialCancelRequested():
            leave = AskToLeave(PreemptReason.CANCEL)
            return _leave(old, TrialState.STOPPING_CANCELED, EndReason.CANCELED, leave)
        case TimeUp():
            if old.state is TrialState.PAUSED:
                return TrialStep(old)  # it leaves already, and comes back with a new attempt that has its own time
            leave = AskToLeave(PreemptReason.CANCEL)
            return _leave(old, TrialState.STOPPING_COMPLETED, EndReason.MAX_TIME, leave)
        case TrialKillRequested():
            return _leave(old, TrialState.STOPPING_KILLED, EndReason.KILLED, KillTrialAttempt())
        case Condemned():
            return _leave(old, TrialState.STOPPING_ERROR, EndReason.ERROR, KillTrialAttempt())
        case EarlyExitReported(reason):
            return _report_early(old, reason)
        case TrialAttemptEnded():
            return _after_attempt(replace(old, attempt=Attempt.NONE), event)
        case _:
            assert_never(event)


def _stop(old: TrialStatus, finished: bool) -> TrialStep:
    reason = EndReason.COMPLETED if finished else EndReason.STOPPED
    if old.early_exit == INVALID_HP:
        reason = EndReason.INVALID_HP
    return _leave(old, TrialState.STOPPING_COMPLETED, reason, AskToLeave(PreemptReason.STOP))


def _pause(old: TrialStatus) -> TrialStep:
    if old.state is not TrialState.ACTIVE:
        return TrialStep(old)
    paused = replace(old, state=TrialState.PAUSED)
    return TrialStep(paused, (AskToLeave(PreemptReason.PAUSE),) if _live(old) else ())


def _hold(old: TrialStatus) -> TrialStep:
    if is_stopping(old.state) or old.hold is Hold.SEARCH:
        return TrialStep(old)
    held = replace(old, hold=Hold.SEARCH)
    if not _live(old):
        return TrialStep(replace(held, state=TrialState.PAUSED), (TellSearcherPaused(),))
    return _pause(held)


def _release(old: TrialStatus, *, paused: bool) -> TrialStep:
    released = replace(old, hold=Hold.NONE)
    return TrialStep(released) if paused else _activate(released)


def _reopen(old: TrialStatus) -> TrialStep:
    """Take back its end; failures count anew, since somebody has looked at them."""
    if not old.state.terminal:
        return TrialStep(old)
    held = replace(old, state=TrialState.PAUSED, hold=Hold.SEARCH, restarts=0)
    return TrialStep(replace(held, early_exit=None, end_reason=None))


def _activate(old: TrialStatus) -> TrialStep:
    if old.state is not TrialState.PAUSED or old.hold is Hold.SEARCH:
        return TrialStep(old)
    active = replace(old, state=TrialState.ACTIVE)
    # A task that is still leaving asks for the next attempt when it has left.
    return TrialStep(active) if _live(old) else _request(active)


def _live(trial: TrialStatus) -> bool:
    return trial.attempt is Attempt.LIVE


def _request(trial: TrialStatus) -> TrialStep:
    if trial.evaluator is Evaluator.USER:
        return TrialStep(trial)
    run = trial.run + 1
    return TrialStep(replace(trial, attempt=Attempt.LIVE, run=run), (RequestTrialAllocation(run),))


def _leave(old: TrialStatus, wanted: TrialState, reason: EndReason, how: AskToLeave | KillTrialAttempt) -> TrialStep:
    state = TrialState(degrade(old.state, wanted))
    if state is old.state:
        # Asked again. A second kill is sent again: the first may have been lost with the agent's connection.
        again = _live(old) and isinstance(how, KillTrialAttempt) and state is wanted
        return TrialStep(old, (how,) if again else ())
    stopping = replace(old, state=state, end_reason=reason)
    if _live(old):
        return TrialStep(stopping, (how,))
    return _settle(stopping, EndKind.WITHDRAWN)


def _report_early(old: TrialStatus, reason: str) -> TrialStep:
    if old.early_exit is not None:
        return TrialStep(old)
    told = (TellSearcherEarly("invalid_hp"),) if reason == INVALID_HP else ()
    return TrialStep(replace(old, early_exit=reason), told)


def _after_attempt(trial: TrialStatus, ended: TrialAttemptEnded) -> TrialStep:
    """Return the next state of a trial whose attempt ended."""
    if is_stopping(trial.state):
        # It was to leave and is gone: who slew it meanwhile has not changed what was decided of it.
        return _settle(trial, EndKind.KILLED if ended.killed else ended.kind)
    match ended.kind:
        case EndKind.LOST | EndKind.REFUSED | EndKind.KILLED | EndKind.WITHDRAWN:
            return _again(trial)
        case EndKind.FAILED:
            return _count_failure(trial, ended)
        case EndKind.FINISHED:
            return _complete(trial)
        case EndKind.PREEMPTED:
            return _again(trial) if trial.early_exit is None else _complete(trial)
        case _:
            assert_never(ended.kind)


def _again(trial: TrialStatus) -> TrialStep:
    if trial.state is TrialState.ACTIVE:
        return _request(trial)
    return TrialStep(trial, (TellSearcherPaused(),) if trial.hold is Hold.SEARCH else ())


def _count_failure(trial: TrialStatus, ended: TrialAttemptEnded) -> TrialStep:
    if trial.early_exit == INVALID_HP:
        # One rank said so and ended well; the others failed for want of it.
        return _close(trial, TrialState.COMPLETED, EndReason.INVALID_HP)
    if ended.retry is Retry.FREE or (ended.killed and trial.state is TrialState.PAUSED):
        # One that was to leave and is gone stays paused: who slew it meanwhile has not changed what was decided of it.
        return _again(trial)
    if ended.retry is Retry.NEVER:
        return _close(trial, TrialState.ERROR, EndReason.ERROR)
    failed = replace(trial, restarts=trial.restarts + 1)
    if failed.restarts > failed.max_restarts:
        return _close(replace(failed, restarts=trial.restarts), TrialState.ERROR, EndReason.ERROR)
    return _again(failed)


def _complete(trial: TrialStatus) -> TrialStep:
    if trial.early_exit == INVALID_HP:
        return _close(trial, TrialState.COMPLETED, EndReason.INVALID_HP)
    if trial.early_exit == ERRORED:
        return _close(trial, TrialState.ERROR, EndReason.ERROR)
    if trial.metric is MetricState.UNKNOWN and trial.early_exit is None:
        return TrialStep(replace(trial, state=TrialState.PAUSED), (PauseWithoutMetric(),))
    if trial.metric in (MetricState.REQUIRED, MetricState.UNKNOWN):
        return _close(trial, TrialState.ERROR, EndReason.NO_METRICS)
    if trial.metric is MetricState.MISSED:
        closed = _close(trial, TrialState.COMPLETED, EndReason.COMPLETED)
        return TrialStep(closed.state, (WarnNeverReported(), *closed.actions))
    return _close(trial, TrialState.COMPLETED, EndReason.COMPLETED)


def _settle(trial: TrialStatus, kind: EndKind) -> TrialStep:
    """Go from a stopping state to its terminal one."""
    reason = trial.end_reason or EndReason.STOPPED
    if kind is EndKind.FAILED or trial.state is TrialState.STOPPING_ERROR:
        return _close(trial, TrialState.ERROR, EndReason.ERROR)
    if trial.state is TrialState.STOPPING_COMPLETED:
        return _close(trial, TrialState.COMPLETED, reason)
    return _close(trial, TrialState.CANCELED, reason)


def _close(trial: TrialStatus, state: TrialState, reason: EndReason) -> TrialStep:
    closed = replace(trial, state=state, end_reason=reason)
    told: tuple[Action, ...] = ()
    if state is TrialState.ERROR:
        told = (TellSearcherEarly("errored"),)
    elif state is TrialState.CANCELED:
        told = (TellSearcherEarly("user_canceled"),)
    return TrialStep(closed, (*told, CloseTrial()))
