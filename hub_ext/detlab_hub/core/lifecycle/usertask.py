"""A user task: notebook, shell, command … It requests one allocation, runs, and ends; nothing restarts it.

    ACTIVE ─ EndRequested ─► STOPPING_* ─ AttemptEnded ─► CANCELED | ERROR
       └──── AttemptEnded ─► COMPLETED | ERROR

An attempt that never began (the agent refused it, or was lost before the task ran) is requested again: no code of the
user has run yet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import TrialState
from detlab_hub.core.lifecycle.allocation import EndKind
from detlab_hub.core.lifecycle.table import check_move, is_stopping


@dataclass(frozen=True, slots=True)
class UserTask:
    """State of a user task. `run` counts attempts; `end` is why it ended, or is wanted to end."""

    state: TrialState = TrialState.ACTIVE
    run: int = 0
    end: TaskEnd | None = None


# --- events


@dataclass(frozen=True, slots=True)
class UserTaskCreated:
    """Its row exists."""


@dataclass(frozen=True, slots=True)
class EndRequested:
    """A request to end it: by its owner, the idle rule, after a failure, or for a server that the Hub does not know."""

    reason: TaskEnd


@dataclass(frozen=True, slots=True)
class UserTaskAttemptEnded:
    """Its allocation is over. `ran`: the task had started."""

    kind: EndKind
    ran: bool = True


Event: TypeAlias = UserTaskCreated | EndRequested | UserTaskAttemptEnded

_STOPPING = {TaskEnd.CANCELED: TrialState.STOPPING_CANCELED, TaskEnd.FAILED: TrialState.STOPPING_ERROR}

# --- actions


@dataclass(frozen=True, slots=True)
class RequestUserTaskAllocation:
    """Request an allocation, as attempt `run`."""

    run: int


@dataclass(frozen=True, slots=True)
class KillUserTaskAttempt:
    """Kill the current attempt, or withdraw its request."""


@dataclass(frozen=True, slots=True)
class CloseTask:
    """Note its end."""


Action: TypeAlias = RequestUserTaskAllocation | KillUserTaskAttempt | CloseTask


@dataclass(frozen=True, slots=True)
class UserTaskStep:
    """The new state and what to do about it, in order."""

    state: UserTask
    actions: tuple[Action, ...] = ()


def step(old: UserTask, event: Event) -> UserTaskStep:
    """Handle one event; a repeated or late event changes nothing.

    Raises:
        IllegalTransitionError: If the table has no such transition (a bug in this function).
    """
    if old.state.terminal:
        return UserTaskStep(old)
    result = _step(old, event)
    check_move(old.state, result.state.state)
    return result


def _step(old: UserTask, event: Event) -> UserTaskStep:
    match event:
        case UserTaskCreated():
            return UserTaskStep(old) if old.run else _ask(old)
        case EndRequested(reason):
            if is_stopping(old.state):
                return UserTaskStep(old)
            stopping = _STOPPING.get(reason, TrialState.STOPPING_KILLED)
            return UserTaskStep(replace(old, state=stopping, end=reason), (KillUserTaskAttempt(),))
        case UserTaskAttemptEnded(kind, ran):
            return _attempt_ended(old, kind, ran=ran)
        case _:
            assert_never(event)


def _attempt_ended(old: UserTask, kind: EndKind, *, ran: bool) -> UserTaskStep:
    if old.state is TrialState.STOPPING_ERROR:
        return _close(old, TrialState.ERROR, old.end or TaskEnd.FAILED)
    if is_stopping(old.state):
        withdrawn = kind is EndKind.WITHDRAWN and old.end is TaskEnd.KILLED
        return _close(old, TrialState.CANCELED, TaskEnd.CANCELED if withdrawn else old.end or TaskEnd.KILLED)
    match kind:
        case EndKind.REFUSED | EndKind.WITHDRAWN:
            return _ask(old)
        case EndKind.LOST:
            return _close(old, TrialState.ERROR, TaskEnd.LOST) if ran else _ask(old)
        case EndKind.FINISHED | EndKind.PREEMPTED:
            return _close(old, TrialState.COMPLETED, TaskEnd.COMPLETED)
        case EndKind.FAILED:
            return _close(old, TrialState.ERROR, TaskEnd.FAILED)
        case EndKind.KILLED:
            return _close(old, TrialState.CANCELED, TaskEnd.KILLED)
        case _:
            assert_never(kind)


def _ask(old: UserTask) -> UserTaskStep:
    asked = replace(old, run=old.run + 1)
    return UserTaskStep(asked, (RequestUserTaskAllocation(asked.run),))


def _close(old: UserTask, state: TrialState, end: TaskEnd) -> UserTaskStep:
    return UserTaskStep(replace(old, state=state, end=end), (CloseTask(),))
