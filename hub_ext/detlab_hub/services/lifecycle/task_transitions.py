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
from detlab_hub.services.base import references
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.allocation_transitions import apply_allocation
from detlab_hub.services.lifecycle.queue_fields import request_fields
from detlab_hub.store.queries.logs import lines
from detlab_hub.store.tables import AllocationRow, TaskNote, TaskRow

_log = logging.getLogger(__name__)


def apply_task(unit: UnitOfWork, row: TaskRow, event: usertask.Event) -> None:
    """Apply an event to a user task."""
    old = usertask.UserTask(TrialState(row.state), row.run, None if row.end_reason is None else TaskEnd(row.end_reason))
    step = usertask.step(old, event)
    if step.state == old and not step.actions:
        return
    row.state, row.run = step.state.state.value, step.state.run
    row.end_reason = None if step.state.end is None else step.state.end.value
    unit.changed_task(row)
    if old.state is not step.state.state:
        _log.info("task %s: %s", row.id, step.state.state)
        unit.state_changed("task", row.id, old.state.value, step.state.state.value)
    for action in step.actions:
        match action:
            case usertask.RequestUserTaskAllocation(run):
                _request_allocation(unit, row, run)
            case usertask.KillUserTaskAttempt():
                _kill_current(unit, row)
            case usertask.CloseTask():
                row.ended_at, row.cull_at = unit.now, None
                references.drop(unit.session, "task", row.id)
                unit.outbox.wake_logs.add(row.id)
            case _:
                assert_never(action)


def current_allocation(unit: UnitOfWork, row: TaskRow) -> AllocationRow | None:
    """Return the newest allocation of a user task, None before the first."""
    return unit.session.scalar(
        select(AllocationRow).where(AllocationRow.task_id == row.id, AllocationRow.run == row.run)
    )


def _request_allocation(unit: UnitOfWork, row: TaskRow, run: int) -> None:
    resources = row.config.get("resources") or {}
    request = AllocationRow(
        id=f"{row.id}.{run}",
        task_id=row.id,
        owner=row.owner,
        run=run,
        state=AllocationState.PENDING.value,
        slots_needed=int(resources.get("slots") or 0),
        runtime=ANY if row.source.get(TaskNote.HOLD) else row.config.get("runtime") or unit.settings.default_runtime,
        priority=row.priority,
        requested_at=unit.now,
        **request_fields(row.config, unit.settings.governed_mounts),
    )
    unit.session.add(request)
    unit.session.flush()
    unit.changed_cluster()
    unit.outbox.kick_scheduler = True


def _kill_current(unit: UnitOfWork, row: TaskRow) -> None:
    current = current_allocation(unit, row)
    if current is not None:
        apply_allocation(unit, current, allocations.AllocationKillRequested(unit.now))


def say(unit: UnitOfWork, row: TaskRow, text: str) -> None:
    """Put a line of the master's own into a task's log."""
    record = LogRecord(seq=0, time=unit.now, stdtype="launcher", text=f"detlab: {text}")
    lines.append(unit.session, row.id, row.run, [record])
    unit.outbox.wake_logs.add(row.id)
