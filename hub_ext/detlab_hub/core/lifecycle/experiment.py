"""An experiment: passes a user's requests on to its trials and ends when its search has.

The searcher decides how it ends (`SearchEnded`): COMPLETED if at least one trial did not fail, ERROR if
all failed, CANCELED if all were canceled. An experiment that a user or an error is stopping ends when its
last trial has, independent of the searcher.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

from detlab.schemas.wire import ExperimentState
from detlab_hub.core.lifecycle.table import TERMINAL_OF, check_move, degrade, is_stopping


class RequestRefusedError(ValueError):
    """A user asked for something that the state of the experiment does not allow."""


class OrderToTrials(StrEnum):
    """The requests to all trials."""

    PAUSE = "pause"
    ACTIVATE = "activate"
    CANCEL = "cancel"
    KILL = "kill"
    CONDEMN = "condemn"


# --- events


@dataclass(frozen=True, slots=True)
class ExperimentPauseRequested:
    """Free the slots, keep everything."""


@dataclass(frozen=True, slots=True)
class ExperimentActivateRequested:
    """Go on."""


@dataclass(frozen=True, slots=True)
class ExperimentCancelRequested:
    """End; the trials may checkpoint first."""


@dataclass(frozen=True, slots=True)
class ExperimentKillRequested:
    """End now."""


@dataclass(frozen=True, slots=True)
class ExperimentReopened:
    """It had ended and goes on; its trials are told one by one."""


@dataclass(frozen=True, slots=True)
class SearchBroke:
    """The search itself cannot continue."""


@dataclass(frozen=True, slots=True)
class SearchEnded:
    """Every trial that the search requested has ended, and it requests no more."""

    cancel: bool
    failure: bool


@dataclass(frozen=True, slots=True)
class LastTrialClosed:
    """All trials are terminal."""


Event: TypeAlias = (
    ExperimentPauseRequested
    | ExperimentActivateRequested
    | ExperimentCancelRequested
    | ExperimentKillRequested
    | ExperimentReopened
    | SearchBroke
    | SearchEnded
    | LastTrialClosed
)

# --- actions


@dataclass(frozen=True, slots=True)
class OrderTrials:
    """Give every trial that has not ended the same order."""

    order: OrderToTrials


@dataclass(frozen=True, slots=True)
class FinishExperiment:
    """Write down the end."""


Action: TypeAlias = OrderTrials | FinishExperiment


@dataclass(frozen=True, slots=True)
class ExperimentStep:
    """The new state and what to do about it, in order."""

    state: ExperimentState
    actions: tuple[Action, ...] = ()


def step(old: ExperimentState, event: Event) -> ExperimentStep:
    """Handle one event; a request for the present state changes nothing.

    Raises:
        RequestRefusedError: If the state does not allow what the user asks for.
        IllegalTransitionError: If the table has no such transition (a bug in this function).
    """
    result = _step(old, event)
    check_move(old, result.state)
    return result


def _step(old: ExperimentState, event: Event) -> ExperimentStep:
    match event:
        case ExperimentPauseRequested():
            return _toggle(old, ExperimentState.PAUSED, OrderToTrials.PAUSE)
        case ExperimentActivateRequested():
            return _toggle(old, ExperimentState.ACTIVE, OrderToTrials.ACTIVATE)
        case ExperimentCancelRequested():
            return _stop(old, ExperimentState.STOPPING_CANCELED, OrderToTrials.CANCEL)
        case ExperimentKillRequested():
            return _stop(old, ExperimentState.STOPPING_KILLED, OrderToTrials.KILL)
        case ExperimentReopened():
            if not old.terminal:
                raise RequestRefusedError(f"an experiment that is {old} has not ended")
            return ExperimentStep(ExperimentState.ACTIVE)
        case SearchBroke():
            return _stop(old, ExperimentState.STOPPING_ERROR, OrderToTrials.CONDEMN)
        case SearchEnded(cancel, failure):
            return _search_ended(old, cancel=cancel, failure=failure)
        case LastTrialClosed():
            if not is_stopping(old):
                return ExperimentStep(old)
            return ExperimentStep(ExperimentState(TERMINAL_OF[old]), (FinishExperiment(),))
        case _:
            assert_never(event)


def _over(state: ExperimentState) -> bool:
    return state.terminal or state is ExperimentState.DELETING


def _toggle(old: ExperimentState, wanted: ExperimentState, order: OrderToTrials) -> ExperimentStep:
    if old is wanted:
        return ExperimentStep(old)
    if _over(old) or is_stopping(old):
        verb = "paused" if order is OrderToTrials.PAUSE else "activated"
        raise RequestRefusedError(f"an experiment that is {old} cannot be {verb}")
    return ExperimentStep(wanted, (OrderTrials(order),))


def _stop(old: ExperimentState, wanted: ExperimentState, order: OrderToTrials) -> ExperimentStep:
    if _over(old):
        return ExperimentStep(old)
    state = ExperimentState(degrade(old, wanted))
    if state is old and state is not wanted:
        return ExperimentStep(old)
    return ExperimentStep(state, (OrderTrials(order),))


def _search_ended(old: ExperimentState, *, cancel: bool, failure: bool) -> ExperimentStep:
    if _over(old) or is_stopping(old):
        return ExperimentStep(old)
    if failure:
        return ExperimentStep(ExperimentState.ERROR, (FinishExperiment(),))
    if cancel:
        return ExperimentStep(ExperimentState.CANCELED, (FinishExperiment(),))
    return ExperimentStep(ExperimentState.COMPLETED, (FinishExperiment(),))
