"""Idle servers: the reports of their watchers, the warning, and the end."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from detlab.schemas.taskwire import ActivityReply, ActivityReport, TaskEnd
from detlab.schemas.wire import AllocationState, TrialState
from detlab_hub.core.lifecycle import usertask
from detlab_hub.services.base.callers import TaskCaller
from detlab_hub.services.base.context import ServiceContext
from detlab_hub.services.base.fencing import current_holder
from detlab_hub.services.base.unit_of_work import UnitOfWork
from detlab_hub.services.lifecycle.task_transitions import apply_task, say
from detlab_hub.store.tables import AllocationRow, TaskRow

_log = logging.getLogger(__name__)
DEAF_SECONDS = 600.0
"""Seconds after its idle timeout before a server with a silent watcher is ended for that."""
REPORTS_COUNT = 120.0
"""Seconds for which a report is valid: its watcher may have lost its connection to the master since."""


@dataclass
class Idle:
    """The idle rules. A warning first: `cull_at` in the view, an event, a line in the log."""

    _context: ServiceContext
    _heard: dict[str, float] = field(default_factory=dict)

    async def report(self, task: TaskCaller, report: ActivityReport) -> ActivityReply:
        """Take the report of a task's own watcher.

        Raises:
            StaleAttempt: The attempt is over.
        """

        def take(unit: UnitOfWork) -> ActivityReply:
            _, row = current_holder(unit.session, task)
            if not isinstance(row, TaskRow):
                return ActivityReply()
            last = unit.now if report.busy else min(report.last_activity, unit.now)
            row.last_activity = max(row.last_activity or 0.0, last)
            spared = row.cull_at is not None and row.last_activity + (row.idle_timeout or 0.0) > row.cull_at
            if spared:
                row.cull_at = None
                say(unit, row, "in use again: it is not ended")
                unit.changed_task(row)
            return ActivityReply(idle_timeout=row.idle_timeout, cull_at=row.cull_at)

        reply = await self._context.write(take)
        if task.task_id is not None:
            self._heard[task.task_id] = self._context.clock()
        return reply

    async def poll(self) -> list[tuple[str, str]]:
        """Warn and end what is idle; return (owner, server name) of the Hub's servers that were ended."""
        now = self._context.clock()
        found = await self._context.read(_watched)
        self._heard = {task_id: heard for task_id, heard in self._heard.items() if task_id in found}
        due = [task_id for task_id, (last, timeout) in found.items() if self._counts(task_id, last, timeout, now)]
        return await self._context.write(lambda unit: _cull(unit, due)) if due else []

    def _counts(self, task_id: str, last: float, timeout: float, now: float) -> bool:
        """Whether a server is due: its idle time is over, and its watcher has reported or has long been silent."""
        if now < last + timeout - self._warning(timeout):
            return False
        heard = self._heard.get(task_id)
        if heard is not None and now - heard <= max(REPORTS_COUNT, timeout):
            return True
        return now - max(last, self._context.started_at, heard or 0.0) > timeout + DEAF_SECONDS

    def _warning(self, timeout: float) -> float:
        return warning_of(timeout, self._context.settings.idle_warning)


def warning_of(timeout: float, longest: float) -> float:
    """Return the seconds between the warning and the end.

    Args:
        timeout: Idle seconds after which the server is ended.
        longest: Most seconds of warning.
    """
    return min(longest, timeout / 4)


_WATCHED = (
    select(TaskRow.id, TaskRow.last_activity, TaskRow.idle_timeout)
    .join(AllocationRow, (AllocationRow.task_id == TaskRow.id) & (AllocationRow.run == TaskRow.run))
    .where(
        TaskRow.state == TrialState.ACTIVE,
        TaskRow.idle_timeout > 0,
        TaskRow.last_activity.is_not(None),
        TaskRow.server_name.is_not(None),
        AllocationRow.state == AllocationState.RUNNING,
    )
)
"""Run every second, so prepared once, and read without the ORM."""


def _watched(s: Session) -> dict[str, tuple[float, float]]:
    """Task -> (last activity, idle timeout) of what runs and may idle out."""
    return {task_id: (last or 0.0, timeout or 0.0) for task_id, last, timeout in s.connection().execute(_WATCHED)}


def _cull(unit: UnitOfWork, task_ids: Sequence[str]) -> list[tuple[str, str]]:
    ended = []
    for task_id in task_ids:
        row = unit.task(task_id)
        timeout, last = row.idle_timeout or 0.0, row.last_activity or 0.0
        if TrialState(row.state) is not TrialState.ACTIVE or not timeout:
            continue
        warning = warning_of(timeout, unit.settings.idle_warning)
        if row.cull_at is None:
            row.cull_at = max(last + timeout, unit.now + warning)
            say(
                unit,
                row,
                f"this {row.kind} has been idle for {unit.now - last:.0f} s:"
                f" it is ended in {row.cull_at - unit.now:.0f} s unless it is used",
            )
            unit.changed_task(row)
        elif unit.now >= row.cull_at:
            _log.info("task %s is idle, ending it", row.id)
            say(unit, row, f"this {row.kind} has been idle for {unit.now - last:.0f} s: it is ended")
            apply_task(unit, row, usertask.EndRequested(TaskEnd.IDLE))
            ended.append((row.owner, row.server_name or ""))
    return ended
