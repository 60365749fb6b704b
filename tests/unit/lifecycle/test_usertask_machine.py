"""The machine of user tasks: every event in every state."""

from __future__ import annotations

import pytest

from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import TrialState
from detlab_hub.core.lifecycle.allocation import EndKind
from detlab_hub.core.lifecycle.usertask import (
    CloseTask,
    EndRequested,
    KillUserTaskAttempt,
    RequestUserTaskAllocation,
    UserTask,
    UserTaskAttemptEnded,
    UserTaskCreated,
    step,
)

RUNNING = UserTask(run=1)


def test_usertask_asks_once_for_a_place() -> None:
    first = step(UserTask(), UserTaskCreated())
    assert first.actions == (RequestUserTaskAllocation(1),)
    assert step(first.state, UserTaskCreated()).actions == ()


@pytest.mark.parametrize(
    ("kind", "state", "end"),
    [
        (EndKind.FINISHED, TrialState.COMPLETED, TaskEnd.COMPLETED),
        (EndKind.PREEMPTED, TrialState.COMPLETED, TaskEnd.COMPLETED),
        (EndKind.FAILED, TrialState.ERROR, TaskEnd.FAILED),
        (EndKind.KILLED, TrialState.CANCELED, TaskEnd.KILLED),
        (EndKind.LOST, TrialState.ERROR, TaskEnd.LOST),
    ],
)
def test_usertask_ends_with_its_attempt(kind: EndKind, state: TrialState, end: TaskEnd) -> None:
    ended = step(RUNNING, UserTaskAttemptEnded(kind))
    assert (ended.state.state, ended.state.end, ended.actions) == (state, end, (CloseTask(),))


@pytest.mark.parametrize(("kind", "ran"), [(EndKind.REFUSED, False), (EndKind.LOST, False), (EndKind.WITHDRAWN, False)])
def test_usertask_that_never_began_is_asked_for_again(kind: EndKind, ran: bool) -> None:
    again = step(RUNNING, UserTaskAttemptEnded(kind, ran=ran))
    assert again.actions == (RequestUserTaskAllocation(2),)
    assert again.state.state is TrialState.ACTIVE


@pytest.mark.parametrize("kind", list(EndKind))
@pytest.mark.parametrize("reason", [TaskEnd.KILLED, TaskEnd.IDLE, TaskEnd.ABANDONED, TaskEnd.CANCELED])
def test_usertask_that_is_wanted_gone_stays_gone(kind: EndKind, reason: TaskEnd) -> None:
    asked = step(RUNNING, EndRequested(reason))
    assert asked.actions == (KillUserTaskAttempt(),)
    assert step(asked.state, EndRequested(TaskEnd.KILLED)).actions == ()
    ended = step(asked.state, UserTaskAttemptEnded(kind))
    waited = kind is EndKind.WITHDRAWN and reason is TaskEnd.KILLED
    assert ended.state.state is TrialState.CANCELED
    assert ended.state.end is (TaskEnd.CANCELED if waited else reason)
    for late in (UserTaskCreated(), EndRequested(reason), UserTaskAttemptEnded(kind)):
        assert step(ended.state, late).actions == ()
