"""The shell around the machine of user tasks; the counterpart of `transitions` for trials."""

from __future__ import annotations

import logging
from typing import assert_never

from sqlalchemy import select

from detlab.schemas.runtimes import ANY
from detlab.schemas.taskwire import TaskEnd
from detlab.schemas.wire import AllocationState, LogRecord, TrialState
from detlab_hub.core.lifecycle import allocation as allocations
from detlab_hub.core.lifecycle import usertask
from detlab_hub.services.kernel import references
from detlab_hub.services.kernel.turn import Turn
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.lifecycle.queue_fields import request_fields
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.tables import AllocationRow, TaskNote, TaskRow

_log = logging.getLogger(__name__)


def apply_task(turn: Turn, row: TaskRow, event: usertask.Event) -> None:
    """Apply an event to a user task."""
    old = usertask.UserTask(TrialState(row.state), row.run, None if row.end_reason is None else TaskEnd(row.end_reason))
    step = usertask.step(old, event)
    if step.state == old and not step.actions:
        return
    row.state, row.run = step.state.state.value, step.state.run
    row.end_reason = None if step.state.end is None else step.state.end.value
    turn.changed_task(row)
    if old.state is not step.state.state:
        _log.info("task %s: %s", row.id, step.state.state)
        turn.state_changed("task", row.id, old.state.value, step.state.state.value)
    for action in step.actions:
        match action:
            case usertask.RequestUserTaskAllocation(run):
                _request_allocation(turn, row, run)
            case usertask.KillUserTaskAttempt():
                _kill_current(turn, row)
            case usertask.CloseTask():
                row.ended_at, row.cull_at = turn.now, None
                references.drop(turn.session, "task", row.id)
                turn.outbox.wake_logs.add(row.id)
            case _:
                assert_never(action)


def current_allocation(turn: Turn, row: TaskRow) -> AllocationRow | None:
    """Return the newest allocation of a user task, None before the first."""
    return turn.session.scalar(
        select(AllocationRow).where(AllocationRow.task_id == row.id, AllocationRow.run == row.run)
    )


def _request_allocation(turn: Turn, row: TaskRow, run: int) -> None:
    resources = row.config.get("resources") or {}
    request = AllocationRow(
        id=f"{row.id}.{run}",
        task_id=row.id,
        owner=row.owner,
        run=run,
        state=AllocationState.PENDING.value,
        slots_needed=int(resources.get("slots") or 0),
        runtime=ANY if row.source.get(TaskNote.HOLD) else row.config.get("runtime") or turn.settings.default_runtime,
        priority=row.priority,
        requested_at=turn.now,
        **request_fields(row.config),
    )
    turn.session.add(request)
    turn.session.flush()
    turn.changed_cluster()
    turn.outbox.kick_scheduler = True


def _kill_current(turn: Turn, row: TaskRow) -> None:
    current = current_allocation(turn, row)
    if current is not None:
        apply_allocation(turn, current, allocations.AllocationKillRequested(turn.now))


def say(turn: Turn, row: TaskRow, text: str) -> None:
    """Put a line of the master's own into a task's log."""
    record = LogRecord(seq=0, time=turn.now, stdtype="launcher", text=f"detlab: {text}")
    lines.append(turn.session, row.id, row.run, [record])
    turn.outbox.wake_logs.add(row.id)
